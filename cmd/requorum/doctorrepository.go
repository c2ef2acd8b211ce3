package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

// clockTolerance is by how much this host's clock may differ from the
// repository's before `--at` would be given wrong times. What a request takes is
// within it.
const clockTolerance = 2 * time.Second

// nextOfPlace is what to do about an error of a repository.
func (e *examination) nextOfPlace(err error) string {
	switch {
	case errors.Is(err, sinks.ErrDenied) && e.agent == nil:
		return "allow it: docs/s3.md has the rights in a bucket; a folder has to be the user's own; who restores alone needs no more than to read"
	case errors.Is(err, sinks.ErrDenied):
		return "allow it: docs/s3.md has the rights in a bucket; a folder has to be the user's own"
	case errors.Is(err, repository.ErrAltered):
		return "look at what is damaged with requorum verify"
	}
	return "correct " + e.orKey("--repo", "repository.url") + ", or make sure that the folder or bucket exists and can be reached from this host"
}

// examineRepository does each operation once, on a scratch object. It is false
// where the place does not answer, and nothing more need be asked of it.
func (e *examination) examineRepository(ctx context.Context, s sinks.Sink) (sinks.Abilities, bool) {
	name := s.String()
	first, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	abilities, err := s.Abilities(first)
	if err != nil {
		e.failed(name, err, e.nextOfPlace(err))
		return abilities, false
	}
	for _, note := range abilities.Notes {
		e.add(checkWarn, name, note, "")
	}
	repo, err := repository.Open(first, s)
	switch {
	case errors.Is(err, repository.ErrNoRepository):
		e.add(checkOK, name, "no repository there yet: the first backup or archiver makes one", "")
	case err != nil:
		e.failed(name, err, e.nextOfPlace(err))
		return abilities, false
	case repo.Damage() != nil:
		e.add(checkWarn, name, repo.Damage().Error(), "")
	}
	if err == nil && repo.Checks() {
		e.examineForeign(ctx, repo)
	}
	e.examineLineage(first, s)
	bucket, _ := place.Bucket(s)
	if !abilities.ExclusiveCreate {
		bucket = nil
	}
	e.examineRightsIn(ctx, s, bucket, abilities)
	if place.PaysPerRequest(name) && (e.agent == nil || e.agent.Archiving()) {
		interval := e.options.interval
		if interval == 0 {
			interval = archive.DefaultInterval
		}
		e.report.Costs = append(e.report.Costs, costOf(name, interval, e.options.archivers, e.agent != nil))
	}
	return abilities, true
}

// foreignExamined is how many records of what was pruned and results of jobs are read, of
// which there may be many: those that were stored last.
const foreignExamined = 200

// examineForeign reports what nobody who is trusted signed: backups, verdicts, ends of
// timelines, what the log's ends and names show, and what was pruned, pinned and done last.
func (e *examination) examineForeign(ctx context.Context, repo *repository.Repository) {
	object := "signatures in " + repo.String()
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err == nil {
		_, err = verdict.ReadAll(ctx, repo)
	}
	var logs logsReport
	if err == nil {
		logs, err = readLogs(ctx, walreplay.NewArchives(repo), catalog)
	}
	if err == nil {
		_, err = readEnded(ctx, repo, catalog.Timelines)
	}
	if err == nil {
		_, err = repo.Pins(ctx)
	}
	if err == nil {
		err = repo.LookForForeign(ctx, foreignExamined)
	}
	names, why := repo.Foreign()
	for _, name := range names {
		e.add(checkWarn, object, why[name].Error(), "")
	}
	for _, d := range logs.DamagedLogs {
		e.add(checkWarn, object, d.Error, "")
	}
	switch {
	case err != nil:
		e.failed(object, err, e.nextOfPlace(err))
	case len(names)+len(logs.DamagedLogs) == 0:
		e.add(checkOK, object, "all that was looked at is signed by who is trusted", "")
	}
}

// examineLineage reports a repository that belongs to another cluster: nothing of this
// one would be stored there.
func (e *examination) examineLineage(ctx context.Context, s sinks.Sink) {
	if e.survey == nil {
		return
	}
	var req snapshot.Request
	if dir := e.options.dataDir; dir != "" {
		if t, restored := restore.Origin(dir, e.survey.ClusterID); restored {
			req.Parent = t.Parent
		}
	}
	if err := req.CheckLineage(ctx, s, *e.survey); errors.Is(err, snapshot.ErrOtherLineage) {
		e.failed(s.String(), err, "name this cluster's own repository")
	}
}

// examineRightsIn uses a scratch object. The bucket is nil where the place is none, or one
// that could overwrite: there no rights are divided.
func (e *examination) examineRightsIn(ctx context.Context, s sinks.Sink, bucket *s3.Sink, abilities sinks.Abilities) {
	place := s.String()
	unused := "doctor-" + rand.Text()
	name := "scratch/" + unused
	data := []byte("requorum doctor wrote this to see whether it may. It can be deleted.\n")
	before := time.Now()
	object, err := sinks.Put(ctx, s, name, data, sinks.CreateOptions{})
	after := time.Now()
	if err != nil {
		e.failed(place, fmt.Errorf("write: %w", err), e.nextOfPlace(err))
		return
	}
	if !object.LockedUntil.IsZero() {
		e.add(checkWarn, place, fmt.Sprintf("the bucket locks every object by itself (until %s), claims, small log segments and the heartbeats of the jobs' lease, 1440 a day, too", when(object.LockedUntil)),
			"remove the bucket's default retention; requorum locks what needs it (object-lock=… in the URL)")
	}
	if _, err := sinks.Put(ctx, s, name, data, sinks.CreateOptions{}); !errors.Is(err, sinks.ErrExists) {
		e.add(checkFail, place, fmt.Sprintf("an object could be overwritten (%v)", err), "use a server with conditional puts")
	}
	if got, err := sinks.Get(ctx, s, name, 1<<20); err != nil || !bytes.Equal(got, data) {
		e.add(checkFail, place, fmt.Sprintf("read: %v", cmp.Or(err, errors.New("the bytes are not those that were written"))), e.nextOfPlace(err))
	}
	found, err := s.Stat(ctx, name)
	if err != nil {
		e.failed(place, fmt.Errorf("look at an object: %w", err), e.nextOfPlace(err))
	}
	listed := false
	for o, err := range s.List(ctx, "scratch/", "") {
		if err != nil {
			e.failed(place, fmt.Errorf("list: %w", err), e.nextOfPlace(err))
			listed = true
			break
		}
		listed = listed || o.Name == name
	}
	if !listed {
		e.add(checkFail, place, "an object that was written is not listed", "use a server that lists what it holds")
	}
	e.examineClock(place, found.ModTime, before, after)
	if abilities.ExclusiveCreate {
		e.add(checkOK, place, "can be written, read and listed; of two writers of one name one wins", "")
	} else {
		e.examineSharing(place)
	}
	switch err := s.Delete(ctx, name); {
	case errors.Is(err, sinks.ErrDenied) && bucket != nil && e.agent != nil: // a later prune removes it; see below
	case errors.Is(err, sinks.ErrDenied) && e.agent != nil && e.agent.Jobs.Prune.Runs():
		e.add(checkFail, place, fmt.Sprintf("nothing can be deleted, and the job prune has to (%s stays)", name), "let the agent's user delete there, or write jobs.prune.run: off and prune from elsewhere")
	case errors.Is(err, sinks.ErrDenied):
		e.add(checkWarn, place, fmt.Sprintf("nothing can be deleted, so merged log segments do not replace the small ones (%s stays)", name), "allow deleting below <timeline>/l0 and claims, see docs/s3.md, or prune from elsewhere")
	case errors.Is(err, sinks.ErrLocked):
		e.add(checkWarn, place, fmt.Sprintf("%s is locked and stays", name), "")
	case err != nil:
		e.failed(place, fmt.Errorf("delete: %w", err), e.nextOfPlace(err))
	}
	if bucket != nil {
		e.examineKey(ctx, bucket, unused)
	}
}

// examineSharing says what follows where the place does not decide between two
// writers of one name.
func (e *examination) examineSharing(place string) {
	const text = "it does not decide between two writers of one name: of two archivers one would overwrite the other's log"
	const later = "use a server with conditional puts, so that another agent can take over"
	switch {
	case e.agent == nil:
		e.add(checkWarn, place, text, "use a server with conditional puts, or run a single archiver and say so with --single-writer")
	case e.agent.Repository.Writer == "":
		e.add(checkFail, place, text, "use a server with conditional puts, or name the one agent that writes: repository.writer: "+e.agent.Name)
	case e.agent.Repository.Writer != e.agent.Name:
		e.add(checkWarn, place, fmt.Sprintf("%s; %s alone writes, and this agent (%s) waits", text, e.agent.Repository.Writer, e.agent.Name), later)
	default:
		e.add(checkWarn, place, text+"; this agent alone writes", later)
	}
}

// examineClock compares an object's time with this host's, before and after it
// was written. Stores give whole seconds.
func (e *examination) examineClock(place string, stored, before, after time.Time) {
	if off := clockOff(stored, before, after); off != 0 {
		e.add(checkWarn, place, fmt.Sprintf("this host's clock and the repository's differ by %s: restore --at goes by this host's", off), "set the clock: NTP on every member")
	}
}

// clockOff is by how much a time that somebody else gave between before and after
// is wrong, to the second; 0 within the tolerance, or where none was given.
func clockOff(given, before, after time.Time) time.Duration {
	switch {
	case given.IsZero():
		return 0
	case given.Before(before.Add(-clockTolerance)):
		return before.Sub(given).Round(time.Second)
	case given.After(after.Add(clockTolerance)):
		return -given.Sub(after).Round(time.Second)
	}
	return 0
}

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
		return // there is none, or it is reported already
	}
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		e.failed("backups in "+s.String(), err, e.nextOfPlace(err))
		return
	}
	if len(catalog.Manifests) == 0 {
		return
	}
	newest := slices.MaxFunc(catalog.Manifests, func(a, b *snapshot.Manifest) int { return a.Started.Compare(b.Started) })
	if newest.Object.Encrypted() {
		e.examineKeys(ctx, repo, newest)
	}
	if first := catalog.EncryptedSince[newest.Timeline]; first != nil && e.agent.HasCluster() && !e.agent.Encrypted() {
		e.add(checkFail, "encryption.recipients", (&snapshot.MustEncryptError{Timeline: newest.Timeline, Encrypted: first.ID}).Error(),
			"set encryption.recipients as the other writers have it")
	}
	e.examineSpace(newest)
}

// readingJobs are those that run here and open what is stored.
func (e *examination) readingJobs() []string {
	var all []string
	for _, job := range e.agent.Jobs.All() {
		if job.Reads && job.Timing.Runs() {
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
		return // reported already, or not needed
	}
	if len(identities) == 0 {
		e.add(checkFail, check, "is encrypted, and this agent holds no identity for "+jobs,
			"add encryption.identity-files, or turn these jobs off here and run them on a verifier that holds the identity")
		return
	}
	header, err := readHead(ctx, repo.Sink(), m.Object.Name, min(headSize, m.Object.StoredSize))
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
	r, err := s.Open(ctx, name, 0, size)
	if err != nil {
		return nil, err
	}
	head, err := io.ReadAll(r)
	return head, errors.Join(err, r.Close())
}

// scratchDatabases is how many unpacked databases a job has at once.
const scratchDatabases = 2

// replayBytes is what replaying needs in memory beside bytesPerKey.
const replayBytes = 64 << 20

// examineSpace looks whether the replaying jobs have the room that the newest
// backup takes, on the disk and in memory.
func (e *examination) examineSpace(m *snapshot.Manifest) {
	j := e.agent.Jobs
	if !j.Synthetic.Runs() && !j.Prove(report.Structure) {
		return
	}
	dir, need := e.agent.Resources.ScratchDir, scratchDatabases*m.Object.RawSize
	switch free, known, err := safedir.Free(dir); {
	case err != nil || !known:
		// A folder that is not there is reported elsewhere.
	case free < need:
		e.add(checkFail, "scratch "+dir, fmt.Sprintf("%s free, and two databases of %s are unpacked there", size(free), size(m.Object.RawSize)), "make room, or write a resources.scratch-dir with more")
	default:
		e.add(checkOK, "scratch "+dir, fmt.Sprintf("%s free for two databases of %s", size(free), size(m.Object.RawSize)), "")
	}
	if m.Keys.Count == nil || !j.Synthetic.Runs() && !j.Prove(report.Replay) {
		return
	}
	memory, limit := *m.Keys.Count*bytesPerKey+replayBytes, int64(e.agent.Resources.JobMemory)
	if memory > limit {
		e.add(checkFail, "resources.job-memory", fmt.Sprintf("replaying %d keys takes about %s, and %s are allowed", *m.Keys.Count, size(memory), size(limit)), fmt.Sprintf("write resources.job-memory: %dMiB, on a host that has them", (memory+memory/4)>>20))
	}
}

// probeTimeout bounds one look at a port.
const probeTimeout = 5 * time.Second

// examineServers looks at the certificate of each member's port.
func (e *examination) examineServers(ctx context.Context, client *client.Client) {
	for _, cert := range client.ServerCertificates(ctx) {
		if cert.Err == nil { // otherwise the endpoint does not answer, which is reported
			e.examineExpiry("certificate of "+cert.Endpoint, cert.Expires, "renew the member's certificate")
		}
	}
}

// reach connects to a host and port, and says nothing.
func reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// List prices of S3 Standard, in USD for 1000 requests. Deleting is free.
const (
	putPrice = 0.005 // also for listing
	getPrice = 0.0004
)

const (
	day   = 24 * time.Hour
	month = 30 // days
)

// costReport is what archiving, and agents that know what is stored, cost in
// requests, at most: a cluster that writes all the time, and one that is idle.
type costReport struct {
	Repository string        `json:"repository"`
	Interval   time.Duration `json:"interval"`
	Archivers  int           `json:"archivers"`
	Puts       int64         `json:"puts_a_day"` // segments
	Lists      int64         `json:"lists_a_day"`
	Gets       int64         `json:"gets_a_day"`
	MonthUSD   float64       `json:"usd_a_month"` // all of it, by list price
	// IdlePuts are heartbeats in place of segments, and listings.
	IdlePuts int64   `json:"idle_puts_and_lists_a_day"`
	IdleUSD  float64 `json:"idle_usd_a_month"`
}

// costOf reckons: the writer stores one segment an interval, each of the others
// looks for it as often, and merging reads each twice (its header, then all of
// it) and lists the last day's once an hour. Once an hour each archiver looks whether
// all is there: it lists what is merged, full snapshots and marks, and the small segments
// of up to two hours, which nobody merged yet. An agent lists what is stored every
// few minutes besides.
func costOf(place string, interval time.Duration, archivers int, agents bool) costReport {
	const (
		perPage = 1000
		merging = 2 // pages, where nothing is new: of segments, and of marks
		looking = 4 // listings of a look that finds nothing new
	)
	c := costReport{Repository: place, Interval: interval, Archivers: archivers, Puts: int64(day / interval)}
	c.Gets = int64(archivers+1) * c.Puts
	always := int64(archivers) * 24 * (merging + looking)
	if agents {
		always += int64(archivers) * schedule.ListsADay
	}
	c.Lists = always + 24*int64(archivers)*(c.Puts/perPage+2*c.Puts/24/perPage)
	c.IdlePuts = always + int64(archivers)*int64(day/archive.DefaultAlive)
	c.MonthUSD = month / 1000.0 * (putPrice*float64(c.Puts+c.Lists) + getPrice*float64(c.Gets))
	c.IdleUSD = month / 1000.0 * putPrice * float64(c.IdlePuts)
	return c
}

func (e *examination) printCost(c costReport) {
	e.printf("\n%d archivers to %s, with an interval of %s: a day %d PUT, %d LIST and %d GET, %.2f USD a month; while nothing is written, %d PUT and LIST, %.2f USD a month.\n",
		c.Archivers, c.Repository, c.Interval, c.Puts, c.Lists, c.Gets, c.MonthUSD, c.IdlePuts, c.IdleUSD)
	e.printf("By the list price of S3 Standard (%g USD for 1000 PUT or LIST, %g for 1000 GET), without storage.\n", putPrice, getPrice)
}
