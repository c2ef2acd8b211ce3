package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

type archiveOptions struct {
	conn       connFlags
	repo       repoFlags
	codec      codecFlags
	identities identityFlags

	config     archive.Config
	once       bool
	noSnapshot bool
	merge      bool
	status     time.Duration
}

func (o *archiveOptions) addFlags(f *pflag.FlagSet) {
	o.repo.addFlags(f, false)
	o.conn.addFlags(f)
	c := &o.config
	f.StringVar(&c.DataDir, "data-dir", "", "the member's data directory `DIR`: its log is read there, and nothing is changed")
	f.StringVar(&c.WALDir, "wal-dir", "", "the member's --wal-dir, where it has one of its own")
	f.BoolVar(&o.once, "once", false, "archive what is committed now, and end")
	durationVar(f, &c.Interval, "interval", 0, time.Millisecond, fmt.Sprintf("store a segment when its first entry is this old (default %s to a folder, %s to S3)", config.DiskInterval, archive.DefaultInterval))
	bytesVar(f, &c.Size, "size", "1MiB", "or when it has this many bytes")
	f.StringVar(&c.SpoolDir, "spool-dir", "", "a `folder` of this archiver alone, for segments while the repository is away (default: one below the user's state folder)")
	bytesVar(f, &c.SpoolLimit, "spool-limit", "2GiB", "bound for the spool, and for purged files of the log that are kept until they are read")
	durationVar(f, &c.Takeover, "takeover", 0, time.Second, "how late another archiver has to be before this one writes (default three intervals, 5s at least)")
	durationVar(f, &c.CheckpointHash, "checkpoint-hash", 0, time.Minute, "while another one writes, keep the member's HashKV this often, such as 24h; the member pauses for it, about 1 s for 1.4 GB (default: never)")
	f.BoolVar(&o.noSnapshot, "no-snapshot", false, "take no full snapshot when one is due; until another is taken, the log cannot be restored from")
	f.BoolVar(&c.SingleWriter, "single-writer", false, "no other archiver uses the repository: needed where the server has no conditional puts, which decide between several")
	f.BoolVar(&o.merge, "merge", true, "merge small segments, and remove the small ones a day later; one of several archivers does")
	durationVar(f, &o.status, "status", time.Minute, 0, "print a line on how it stands this often; 0: only when something changes")
	o.codec.addFlags(f)
	f.Lookup("passphrase-file").Hidden = true // it is refused, with the reason
	f.StringArrayVar(&o.identities.files, "identity", nil, "merge encrypted segments with the age identities in this `file`; may be given more than once")
}

func newArchiveCommand(g *globals) *cobra.Command {
	var o archiveOptions
	cmd := &cobra.Command{
		Use:   "archive --data-dir DIR --repo URL [--endpoints URL,…]",
		Short: "Archive the raft log of an etcd member continuously",
		Long: `Run beside an etcd member (3.5 to 3.7) and store its committed raft log in a
repository, so that 'requorum restore' can rebuild the cluster as it was at any
point: the latest, a time, a revision, or just before a key was deleted.

It reads the member's log files and asks the member how far it has come; it
writes nothing into the cluster. Run one beside each member: one of them writes,
the others stand by and take over. Where no full snapshot is there that the log
goes on from, one is taken.

SIGTERM stores what is committed and read, and ends with status 0. With --once,
status 1 says that an alarm is left that somebody has to look at.`,
		Example: `  requorum archive --data-dir /var/lib/etcd --endpoints http://127.0.0.1:2379 \
      --repo 's3://backups/etcd?region=eu-central-1' --recipient age1…
  requorum archive --once --data-dir /var/lib/etcd --repo file:///mnt/backups/etcd`,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.archive(cmd.Context(), &o) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// archiving is one run of the command.
type archiving struct {
	*globals
	options  *archiveOptions
	archiver *archive.Archiver
	config   *archive.Config
	report   *archiveReporter
	keeper   *schedule.Keeper // of full snapshots, without which the log is of no use

	merger     *segment.Merger // of timeline; nil before it was looked at first
	timeline   repository.TimelineID
	toldDenied bool
}

func (g *globals) archive(ctx context.Context, o *archiveOptions) (err error) {
	if err := o.check(g); err != nil {
		return err
	}
	a := &archiving{globals: g, options: o, config: &o.config, report: &archiveReporter{g: g}}
	if err := o.repo.keys.mayWrite(); err != nil {
		return err
	}
	if a.config.Sink, err = o.repo.openSink(ctx, g); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.config.Sink.Close()) }()
	if a.config.Interval == 0 && !place.PaysPerRequest(a.config.Sink.String()) {
		a.config.Interval = config.DiskInterval
	}
	if a.config.SpoolDir == "" {
		if a.config.SpoolDir, err = defaultSpoolDir(g.getenv, a.config.DataDir+"\n"+a.config.WALDir+"\n"+a.config.Sink.String()); err != nil {
			return err
		}
	}
	if a.config.Client, err = a.connect(ctx); err != nil {
		return err
	}
	defer a.config.Client.Close() //nolint:errcheck // nothing is under way any more
	a.config.OnGap = func(ctx context.Context, gap archive.Gap) error { return a.keeper.EnsureFull(ctx, gap) }
	a.config.Events = a.report.event
	if dir := a.config.DataDir; dir != "" {
		a.config.Origin = func(cluster uint64) (repository.Timeline, bool) { return restore.Origin(dir, cluster) }
	}
	if a.archiver, err = archive.New(*a.config); err != nil {
		return err
	}
	a.keeper = &schedule.Keeper{Sink: a.config.Sink, Archiver: a.archiver, Notify: a.report.note}
	if !o.noSnapshot {
		a.keeper.Take = a.takeSnapshot
	}
	if o.once {
		return a.once(ctx)
	}
	return a.run(ctx)
}

// check checks the options before anything is touched, and completes the configuration.
func (o *archiveOptions) check(g *globals) (err error) {
	c := &o.config
	c.Tool, c.Logger = "requorum "+version, g.logger()
	if c.DataDir == "" && c.WALDir == "" {
		return usageError{errors.New("no data directory: give the member's --data-dir")}
	}
	if o.codec.passphraseFile != "" {
		return usageError{errors.New("--passphrase-file: a passphrase costs 128 MiB and some tenths of a second for each segment; encrypt the log to an age key (--recipient), which age-keygen makes")}
	}
	if c.Codec, err = o.codec.options(); err != nil {
		return err
	}
	c.Identities, err = o.identities.parse()
	return err
}

// errNoProgress ends --once where waiting longer would be of no use.
var errNoProgress = errors.New("nothing could be archived")

// giveUp ends ctx when the archiver has met errors and archived nothing for as
// long as a repository is waited for.
func (a *archiving) giveUp(ctx context.Context, end context.CancelCauseFunc) {
	archived, since := uint64(0), time.Now()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch s := a.archiver.State(); {
		case s.LastError == "" || s.Archived > archived:
			archived, since = s.Archived, time.Now()
		case time.Since(since) >= a.options.repo.retryFor:
			end(fmt.Errorf("%w for %s: %s", errNoProgress, a.options.repo.retryFor, s.LastError))
			return
		}
	}
}

// once archives what is committed now, and merges what is due.
func (a *archiving) once(ctx context.Context) error {
	if err := checkLog(cmp.Or(a.config.WALDir, filepath.Join(a.config.DataDir, "member", "wal"))); err != nil {
		return err
	}
	a.noteAbilities(ctx, a.config.Sink)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go a.giveUp(ctx, end)
	err := a.archiver.Once(ctx)
	if err == nil {
		if err = a.keeper.Begin(ctx); errors.Is(err, archive.ErrElsewhere) || err != nil && a.options.noSnapshot {
			a.report.note(err.Error())
			err = nil
		}
	}
	if err == nil && a.options.merge {
		err = a.merge(ctx)
	}
	state := a.archiver.State()
	a.report.state(state)
	if err != nil {
		return err
	}
	if len(state.Alarms) == 0 {
		return nil
	}
	var texts []string
	for _, alarm := range state.Alarms {
		texts = append(texts, fmt.Sprintf("%s: %s", alarm.Alarm, alarm.Text))
	}
	return fmt.Errorf("the log is archived to index %d, with alarms: %s", state.Archived, strings.Join(texts, "; "))
}

// checkLog finds a wrong directory at once. (Without --once the member may be
// about to make it.)
func checkLog(dir string) error {
	_, err := walfile.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log in %s: name the member's own --data-dir or, where its log lies elsewhere, --wal-dir: %w", dir, err)
	}
	return err
}

// run archives until a signal comes.
func (a *archiving) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- a.archiver.Run(ctx) }()
	var beside sync.WaitGroup
	// Not before: a repository that is away must not keep the log from being read.
	beside.Go(func() { a.noteAbilities(ctx, a.config.Sink) })
	beside.Go(func() { a.keeper.KeepBeginning(ctx) })
	if a.options.merge {
		beside.Go(func() { a.keepMerging(ctx) })
	}
	err := a.follow(done)
	stop(nil)
	beside.Wait()
	a.report.state(a.archiver.State())
	return err
}

// look is how often the state is looked at for something new.
const look = 250 * time.Millisecond

// follow prints how it stands until the archiver ends.
func (a *archiving) follow(done <-chan error) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var last archive.State
	var printed time.Time
	for {
		select {
		case err := <-done:
			return err
		case now := <-ticker.C:
			state := a.archiver.State()
			due := a.options.status > 0 && now.Sub(printed) >= a.options.status
			if due || state.Role != last.Role || state.Timeline != last.Timeline {
				a.report.state(state)
				last, printed = state, now
			}
		}
	}
}

// connectAgain is how soon a login is tried again.
const connectAgain = time.Second

// connect waits until the cluster lets the archiver log in: it is started
// together with the member, which may still be looking for its leader. What
// waiting does not change is an error at once, and with --once everything is.
func (a *archiving) connect(ctx context.Context) (*client.Client, error) {
	last := ""
	for {
		cli, err := a.options.conn.connect(ctx, a.globals)
		var asked *client.EndpointError
		if err == nil || a.options.once || !errors.As(err, &asked) || errors.Is(err, client.ErrLogin) {
			return cli, err
		}
		if text := err.Error(); text != last {
			a.report.note(text)
			last = text
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(connectAgain):
		}
	}
}

func (a *archiving) takeSnapshot(ctx context.Context, timeline repository.TimelineID) error {
	local, err := walreplay.LocalMember(a.config.DataDir, a.config.WALDir)
	if err != nil {
		a.report.note(fmt.Sprintf("the full snapshot is streamed, since %s does not show which member it belongs to: %v", a.config.DataDir, err))
	}
	result, err := snapshot.Take(ctx, snapshot.Request{
		Client: a.config.Client, Local: local, Sinks: []sinks.Sink{a.config.Sink}, Codec: a.config.Codec, Tool: a.config.Tool,
		Timeline: timeline, Reached: archive.Reached, Logger: a.config.Logger,
	})
	if err != nil {
		return err
	}
	a.report.backup(result.Outcomes[0].Manifest)
	return nil
}

// firstMerge is when merging is looked at first: soon, since an archiver may be
// restarted more often than once an hour, and not at once, when it has better
// things to do.
const firstMerge = time.Minute

// keepMerging merges now and then, beside the archiver, until ctx ends, or nothing can be
// merged for want of an identity.
func (a *archiving) keepMerging(ctx context.Context) {
	wait := firstMerge
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = segment.DefaultMergeEvery
		var missing *segment.NoIdentityError
		switch err := a.merge(ctx); {
		case errors.As(err, &missing):
			a.report.note(fmt.Sprintf("the log is archived and not merged: %v", err))
			return
		case err != nil && ctx.Err() == nil:
			a.report.note(fmt.Sprintf("merging failed, and is tried again in an hour: %v", err))
		}
	}
}

// merge merges what is due now.
func (a *archiving) merge(ctx context.Context) error {
	state := a.archiver.State()
	if state.Role != archive.Writer {
		return nil // another archiver does it, or nobody writes now
	}
	if a.merger == nil || a.timeline != state.Timeline {
		repo, err := repository.Open(ctx, a.config.Sink)
		if err != nil {
			return err
		}
		a.timeline = state.Timeline
		a.merger = segment.NewMerger(segment.MergeConfig{
			Repo: repo, Timeline: a.timeline, Identities: a.config.Identities,
			Codec: a.config.Codec, Tool: a.config.Tool, Logger: a.logger(),
		})
	}
	r, err := a.merger.Merge(ctx)
	if r.Worked {
		a.report.merge(r, err)
	}
	if r.Denied != nil && !a.toldDenied {
		a.toldDenied = true
		a.report.note(fmt.Sprintf("merged segments cannot replace the small ones, so the repository grows: %v; allow deleting below <timeline>/l0 and <timeline>/marks, see docs/s3.md", r.Denied))
	}
	return err
}

// archiveLine is one line of `requorum archive --output json`: the time, and
// one of the others.
type archiveLine struct {
	Time   time.Time          `json:"time"`
	State  *archive.State     `json:"state,omitempty"`
	Alarm  *archive.Event     `json:"alarm,omitempty"`
	Backup *snapshot.Manifest `json:"backup,omitempty"` // a full snapshot that was due, and taken
	Merge  *mergeLine         `json:"merge,omitempty"`
	Note   string             `json:"note,omitempty"`
}

type mergeLine struct {
	Sources  int      `json:"sources"` // segments that were merged
	Segments int      `json:"segments"`
	Removed  int      `json:"removed"`       // superseded segments
	Marks    int      `json:"marks_removed"` // that said nothing new
	Locked   int      `json:"locked"`        // superseded ones that a retention keeps
	Damaged  []string `json:"damaged"`
	Error    string   `json:"error,omitempty"`
}

// archiveReporter prints lines, from several goroutines.
type archiveReporter struct {
	g  *globals
	mu sync.Mutex
}

func (r *archiveReporter) print(line archiveLine, text string) {
	line.Time = time.Now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.g.output != "json" {
		r.g.printf("%s  %s\n", when(line.Time), oneLine(text))
		return
	}
	enc := json.NewEncoder(r.g.stdout)
	enc.SetEscapeHTML(false)
	enc.Encode(line) //nolint:errcheck // of a broken standard output nobody could hear
}

func (r *archiveReporter) state(s archive.State) {
	s.Gaps, s.Alarms = emptyNotNull(s.Gaps), emptyNotNull(s.Alarms)
	text := s.String()
	if s.Timeline == (repository.TimelineID{}) {
		text = string(s.Role) + ": the timeline is not known yet"
		if s.LastError != "" {
			text += "; " + s.LastError
		}
	}
	if s.ArchivedRevision > 0 {
		text += fmt.Sprintf("; revision %d", s.ArchivedRevision)
	}
	if s.Spooled > 0 {
		text += "; spool " + size(s.Spooled)
	}
	if s.SnapshotDue != "" {
		text += "; a full snapshot is due: " + s.SnapshotDue
	}
	r.print(archiveLine{State: &s}, text)
}

func (r *archiveReporter) event(e archive.Event) {
	text := fmt.Sprintf("alarm %s: %s", e.Alarm, e.Text)
	if !e.Raised {
		text = fmt.Sprintf("alarm %s is over (%s)", e.Alarm, e.Text)
	}
	r.print(archiveLine{Alarm: &e}, text)
}

func (r *archiveReporter) backup(m *snapshot.Manifest) {
	r.print(archiveLine{Backup: m}, fmt.Sprintf("took the full snapshot that was due: %s, revision %d, raft index %d", m.ID, m.Facts.Revision, m.Facts.RaftIndex))
}

func (r *archiveReporter) note(text string) { r.print(archiveLine{Note: text}, "note: "+text) }

func (r *archiveReporter) merge(m segment.MergeReport, err error) {
	line := mergeLine{Sources: m.Sources, Segments: len(m.Merged), Removed: m.Removed, Marks: m.Marks, Locked: m.Locked, Damaged: []string{}}
	text := fmt.Sprintf("merged %d segments into %d, removed %d superseded ones", m.Sources, len(m.Merged), m.Removed)
	if m.Locked > 0 {
		text += fmt.Sprintf(", left %d that are locked", m.Locked)
	}
	for _, d := range m.Damaged {
		line.Damaged = append(line.Damaged, d.Error())
		text += "; damaged: " + d.Error()
	}
	if err != nil {
		line.Error = err.Error()
		text += "; failed: " + err.Error()
	}
	r.print(archiveLine{Merge: &line}, text)
}

// defaultSpoolDir is where an archiver of that member and repository keeps its
// spool when none is given.
func defaultSpoolDir(getenv func(string) string, of string) (string, error) {
	dir, err := config.DefaultSpoolDir(getenv, of)
	if err != nil {
		return "", usageError{fmt.Errorf("%w: give --spool-dir, or set HOME or STATE_DIRECTORY", err)}
	}
	return dir, nil
}
