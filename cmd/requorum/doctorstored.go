package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// examineWriter finds a writer that is named without need.
func (e *examination) examineWriter(ctx context.Context, s sinks.Sink) {
	writer := e.agent.Repository.Writer
	abilities, err := s.Abilities(ctx)
	if err != nil || writer == "" || !abilities.ExclusiveCreate {
		return // told already, or in order
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
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		e.failed("backups in "+s.String(), err, "")
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
		e.failed(check, err, "")
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
	switch free, known, err := freeSpace(existing(dir)); {
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
