package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/space"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// examineWriter finds a writer that is named without need.
func (e *examination) examineWriter(s sinks.Sink, abilities sinks.Abilities) {
	writer := e.agent.Repository.Writer
	if writer == "" || !abilities.ExclusiveCreate {
		return // in order
	}
	e.add(checkWarn, "repository.writer", fmt.Sprintf("%s decides between several writers, and %s alone may write: no other agent takes over", s, writer), "remove repository.writer")
}

// examineStored holds the jobs against the newest backup: can they read it, and
// is there room for it?
func (e *examination) examineStored(ctx context.Context, s sinks.Sink) {
	repo, err := repository.Open(ctx, s)
	if err != nil {
		return // there is none, or it is told already
	}
	e.examineNamesake(ctx, repo)
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		e.failed("backups in "+s.String(), err, e.nextOfPlace(err))
		return
	}
	var newest *snapshot.Manifest
	for _, m := range catalog.Manifests {
		if newest == nil || m.Started.After(newest.Started) {
			newest = m
		}
	}
	if newest == nil {
		return
	}
	if newest.Object.Encrypted() {
		e.examineKeys(ctx, repo, newest)
	}
	e.examineRoom(newest)
}

// examineNamesake finds two agents that have one name, where what they left proves
// it.
func (e *examination) examineNamesake(ctx context.Context, repo *repository.Repository) {
	two, err := job.Namesakes(ctx, repo, e.agent.Name)
	switch {
	case err != nil:
		e.failed("name", err, e.nextOfPlace(err))
	case two:
		e.add(checkWarn, "name", fmt.Sprintf("within a day two agents called %s ran at the same time: each takes the other's runs for its own", e.agent.Name),
			"give each agent a name of its own, with the key name, and start it anew")
	}
}

// readingJobs are those that run here and open what is stored.
func (e *examination) readingJobs() []string {
	var all []string
	for _, job := range e.agent.Jobs.All() {
		if job.Reads && job.Timing.Enabled {
			all = append(all, job.Name)
		}
	}
	return all
}

// examineKeys tries the identities on a stored object's header.
func (e *examination) examineKeys(ctx context.Context, repo *repository.Repository, m *snapshot.Manifest) {
	check, jobs := "backup "+m.ID, strings.Join(e.readingJobs(), ", ")
	identities, err := e.agent.Identities()
	if err != nil || jobs == "" {
		return // told already, or not needed
	}
	if len(identities) == 0 {
		e.add(checkFail, check, "is encrypted, and this agent holds no identity for "+jobs,
			"add encryption.identity-files, or turn these jobs off here and run them on a verifier that holds the identity")
		return
	}
	header, err := readHead(ctx, repo.Sink(), m.Object.Name, m.Object.StoredSize)
	if err != nil {
		e.failed(check, err, "look at it with requorum verify: its object may be damaged or gone")
		return
	}
	var none *age.NoIdentityMatchError
	switch _, err := age.Decrypt(bytes.NewReader(header), identities...); {
	case errors.As(err, &none):
		e.add(checkFail, check, fmt.Sprintf("encryption.identity-files do not open it (it is encrypted to %s), so %s would fail", strings.Join(m.Object.Recipients, ", "), jobs),
			"add the identity of one of these recipients to encryption.identity-files")
	case err != nil:
		e.failed(check, err, "look at it with requorum verify")
	default:
		e.add(checkOK, check, "opens with encryption.identity-files", "")
	}
}

// headSize is more than an age header has with a hundred recipients, and one
// chunk of what follows.
const headSize = 256 << 10

func readHead(ctx context.Context, s sinks.Sink, name string, size int64) ([]byte, error) {
	r, err := s.Open(ctx, name, 0, min(headSize, size))
	if err != nil {
		return nil, err
	}
	head, err := io.ReadAll(r)
	return head, errors.Join(err, r.Close())
}

// scratchDatabases is how many unpacked databases a job has at once.
const scratchDatabases = 2

// keyBytes is what replaying needs in memory for each key, and replayBytes beside.
const (
	keyBytes    = 400
	replayBytes = 64 << 20
)

// examineRoom looks whether the replaying jobs have the room that the newest
// backup takes, on the disk and in memory.
func (e *examination) examineRoom(m *snapshot.Manifest) {
	j := e.agent.Jobs
	if !j.Synthetic.Enabled && !j.Structure.Enabled && !j.Replay.Enabled && !j.Drill.Enabled {
		return
	}
	dir, need := e.agent.Resources.ScratchDir, scratchDatabases*m.Object.RawSize
	switch free, known, err := space.Free(dir); {
	case err != nil || !known:
		// A folder that is not there is told elsewhere.
	case free < need:
		e.add(checkFail, "scratch "+dir, fmt.Sprintf("%s free, and two databases of %s are unpacked there", size(free), size(m.Object.RawSize)), "make room, or write a resources.scratch-dir with more")
	default:
		e.add(checkOK, "scratch "+dir, fmt.Sprintf("%s free for two databases of %s", size(free), size(m.Object.RawSize)), "")
	}
	if m.Keys.Count == nil || !j.Synthetic.Enabled && !j.Replay.Enabled && !j.Drill.Enabled {
		return
	}
	memory, limit := *m.Keys.Count*keyBytes+replayBytes, int64(e.agent.Resources.JobMemory)
	if memory > limit {
		e.add(checkFail, "resources.job-memory", fmt.Sprintf("replaying %d keys takes about %s, and %s are allowed", *m.Keys.Count, size(memory), size(limit)), fmt.Sprintf("write resources.job-memory: %dMiB, on a host that has them", (memory+memory/4)>>20))
	}
}
