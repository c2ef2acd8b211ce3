package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// DataDir proves a member's data directory; walDir is its separate WAL folder,
// empty where it has none. Of a stopped member the log, the database, and what
// the two give together are looked at; of a running one the log only, since its
// database changes all the time. Files are opened read-only.
func DataDir(ctx context.Context, dir, walDir string, req Request) (*report.Report, error) {
	req, err := req.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkMemberFolder(dir, walDir); err != nil {
		return nil, err
	}
	d := &dataDir{run: run{Request: req, report: req.newReport(dir)}, dir: dir, walDir: restore.LogDir(dir, walDir), db: filepath.Join(dir, "member", "snap", "db")}
	err = restore.CheckMemberIdle(dir, d.walDir)
	running := errors.Is(err, restore.ErrInUse)
	switch {
	case err != nil && !running:
		return nil, err
	case running:
		err = d.checkRunning(ctx)
	default:
		err = d.checkStopped(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.noteEtcdFails()
	if err := d.noteOldRequests(ctx); err != nil {
		return nil, err
	}
	return d.finish(), nil
}

// dataDir is a verification of a data directory.
type dataDir struct {
	run
	dir, walDir, db string

	files     map[string]string // as a stopped member's were when they were first looked at
	disturbed string            // why what was read of them counts no more
	snaps     []walfile.Mark    // of the files *.snap that are whole
	log       walfile.Summary   // as far as it could be read
	facts     snapshot.Facts    // of the database, as far as it could be read
	mixed     string            // why the log is not replayed onto the database: they are not of one history
}

// checkStopped takes a stopped member up the levels, as long as it stays stopped.
func (d *dataDir) checkStopped(ctx context.Context) error {
	d.files = d.look()
	var read *walfile.Summary
	steps := []struct {
		level report.Level
		do    func() error
	}{
		{report.Checksum, func() (err error) { read, err = d.checkLog(ctx); return err }},
		{report.Checksum, func() error { return d.checkSnaps(ctx, read) }},
		{report.Structure, func() error { return d.checkDatabase(ctx, read) }},
		{report.Structure, func() error { return d.checkReceived(ctx) }},
		{report.Replay, func() error { return d.replay(ctx) }},
	}
	for _, s := range steps {
		if !d.Level.Includes(s.level) {
			break
		}
		if err := d.quietly(s.do); err != nil {
			return err
		}
	}
	if d.disturbed != "" {
		d.refuseLeft()
		return nil
	}
	return d.drillRebuilt(ctx)
}

// checkLog reads the log; it is nil where it could not be read.
func (d *dataDir) checkLog(ctx context.Context) (read *walfile.Summary, err error) {
	_, err = d.check(ctx, report.Checksum, d.walDir, func(c *report.Check) error {
		c.Compared = "every record of the log with the CRC that runs through all its files, entries with their order, and the log with the database's index"
		c.Bytes, _ = walfile.Size(d.walDir) // who reads them reports it
		log, err := walfile.Open(d.walDir)
		if err != nil {
			d.tookLog(c, err)
			return nil
		}
		d.log.Identity = log.Identity()
		s, err := log.Summary(ctx)
		if err != nil {
			d.tookLog(c, err)
			return nil
		}
		read = &s
		d.log = s
		missing, note, err := walreplay.JudgeStart(d.dir, log, s)
		switch {
		case err != nil:
			unchecked(c, err)
		case missing != "":
			found(c, report.Finding{Kind: report.KindMissing, Text: missing})
		case note != "":
			d.note("%s", note)
		}
		end, err := walreplay.JudgeEnd(ctx, d.dir, log, s)
		switch {
		case err != nil:
			unchecked(c, err)
		case end.Cut != "":
			found(c, report.Finding{Kind: report.KindLogCut, Object: end.File, Where: fmt.Sprintf("index %d", s.LastIndex), Text: end.Cut})
		case end.Torn != "":
			d.note("%s", end.Torn)
		}
		return nil
	})
	return read, err
}

func (d *dataDir) checkDatabase(ctx context.Context, log *walfile.Summary) error {
	if _, err := safedir.Stat(d.db); errors.Is(err, fs.ErrNotExist) {
		d.add(report.Check{Level: report.Structure, Object: d.db, Findings: []report.Finding{{Kind: report.KindMissing, Text: "it is gone; " + noDatabase}}})
		return nil
	}
	read, err := d.checkFile(ctx, d.db)
	if err != nil || log == nil {
		return err
	}
	c := &d.report.Checks[len(d.report.Checks)-1]
	d.facts = read.Facts
	d.compareSnaps(ctx, c, log)
	return d.compareHistories(ctx, c, *log, read)
}

// checkFile checks the pages of a database, and its SHA-256 if a snapshot was put in its place,
// or if it was cut to a length that looks like one.
func (d *dataDir) checkFile(ctx context.Context, path string) (structure.Result, error) {
	if image, err := snapshot.OpenFile(path); err == nil && image.HasHash() {
		if _, err := d.checkSum(ctx, path, image); err != nil {
			return structure.Result{}, err
		}
	}
	return d.checkStructure(ctx, path, path, nil)
}

func (d *dataDir) replay(ctx context.Context) error {
	if d.mixed != "" {
		d.add(report.Check{Level: report.Replay, Object: d.dir, Reason: d.mixed})
		return nil
	}
	checks, err := replaying.CheckDataDir(ctx, d.dir, d.walDir, replaying.Options{ScratchDir: d.ScratchDir, Engine: d.Engine, Progress: d.Progress, Logger: d.Logger})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.report.Checks = append(d.report.Checks, checks...)
	if err != nil {
		d.add(report.Check{Level: report.Replay, Object: d.dir, Reason: err.Error()})
	}
	return nil
}

// tookLog files an error of a log.
func (d *dataDir) tookLog(c *report.Check, err error) {
	var corrupt *walfile.CorruptError
	switch {
	case errors.As(err, &corrupt):
		found(c, report.Finding{Kind: report.KindLogCorrupt, Object: filepath.Join(corrupt.Dir, corrupt.Segment), Where: report.AtByte(corrupt.Offset), Text: corrupt.Err.Error()})
	case errors.Is(err, walfile.ErrNoLog), errors.Is(err, fs.ErrNotExist):
		found(c, report.Finding{Kind: report.KindMissing, Text: fmt.Sprintf("%v; "+noLog+"; if the member has a separate WAL directory (etcd's --wal-dir), add --wal-dir", err)})
	default:
		unchecked(c, err)
	}
}

// drillRebuilt drills what the directory would be restored to: its database with
// the log's end.
func (d *dataDir) drillRebuilt(ctx context.Context) (err error) {
	if !d.Level.Includes(report.Drill) {
		return nil
	}
	if d.mixed != "" {
		d.add(report.Check{Level: report.Drill, Object: d.dir, Reason: d.mixed})
		return nil
	}
	began := time.Now()
	image, err := d.rebuild(ctx)
	if image != nil {
		defer func() { err = errors.Join(err, image.Close()) }()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d.isDisturbed() {
		d.refuseLeft()
		return nil
	}
	if err != nil {
		d.add(report.Check{Level: report.Drill, Object: d.dir, Reason: fmt.Sprintf("its database and log could not be put together: %v", err)})
		return nil
	}
	return d.drill(ctx, drilled{
		name: d.dir, image: image, phases: replaying.PhasesOf(image, time.Since(began)),
		from: fmt.Sprintf("from %s, which is what 'requorum restore --from-data-dir' gives", image.Name()),
	})
}

func (d *dataDir) rebuild(ctx context.Context) (*walreplay.Rebuilt, error) {
	h, err := walreplay.OpenDataDir(ctx, d.dir, d.walDir)
	if err != nil {
		return nil, err
	}
	defer h.Close() //nolint:errcheck // reading
	o := walreplay.Options{ScratchDir: d.ScratchDir, Engine: d.Engine, Logger: d.Logger}
	p, err := h.Resolve(ctx, walreplay.Target{Kind: walreplay.Latest}, "", o)
	if err != nil {
		return nil, err
	}
	return h.Rebuild(ctx, p, o)
}

// compareHistories checks that the log is the one that goes with the database.
func (d *dataDir) compareHistories(ctx context.Context, c *report.Check, s walfile.Summary, db structure.Result) error {
	if db.Facts.Revision == 0 {
		return nil // the database could not be read
	}
	log, err := walfile.Open(d.walDir)
	if err != nil {
		unchecked(c, err)
		return nil
	}
	c.Compared += "; its raft index and term, members, revision and newest rows with the log"
	r, err := walreplay.RelateFile(ctx, d.db, log, s)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		unchecked(c, err)
	case r.Kind == walreplay.Unrelated:
		d.mixed = "the database and the log are not of one history: see the level structure"
		found(c, report.Finding{Kind: report.KindMixed, Object: d.dir, Text: fmt.Sprintf("the database and the log are not of one history: %s; %s", r.Reason, walreplay.AdviceUnrelated)})
	case r.Kind == walreplay.NotShown:
		d.mixed = "nothing shows that the database and the log are of one history: " + r.Reason
		unchecked(c, errors.New(d.mixed))
	}
	return nil
}

// checkMemberFolder refuses a folder that is no data directory: a mistyped path
// must not pass for one that has lost everything.
func checkMemberFolder(dir, walDir string) error {
	if err := walreplay.CheckDataDir(dir); err != nil {
		return err
	}
	member := filepath.Join(dir, "member")
	if isFolder, err := folderAt(member); err != nil {
		return err
	} else if !isFolder {
		return fmt.Errorf("%s: no member's data directory there: want the folder that holds member/. If it is the right one, the member's data is gone: "+noLog, dir)
	}
	if walDir == "" {
		return nil
	}
	if isFolder, err := folderAt(walDir); err != nil {
		return err
	} else if !isFolder {
		return fmt.Errorf("%s: no folder there: want the member's --wal-dir", walDir)
	}
	return nil
}

// folderAt reports whether there is a folder; the error is why that is not known.
func folderAt(path string) (bool, error) {
	info, err := safedir.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	}
	return info.IsDir(), nil
}

// checkRunning reads the log of a running member to the end that it has now.
func (d *dataDir) checkRunning(ctx context.Context) error {
	_, err := d.check(ctx, report.Checksum, d.walDir, func(c *report.Check) error {
		t, err := walfile.OpenTail(d.walDir, walfile.TailOptions{})
		if err != nil {
			d.tookLog(c, err)
			return nil
		}
		defer t.Close() //nolint:errcheck // reading
		c.Bytes, _ = walfile.Size(d.walDir)
		first, last, err := d.follow(ctx, t)
		if err != nil {
			d.tookLog(c, err)
		}
		c.Compared = fmt.Sprintf("every record of the log, from index %d to %d, with the CRC that runs through all its files, and entries with their order", first, last)
		return nil
	})
	if err != nil {
		return err
	}
	d.note("a member runs on %s: its database changes all the time, and was not looked at. Stop the member to verify it, or verify a backup of it", d.dir)
	d.refuseHigher(d.db, "a member runs on it: stop the member to verify its database, or verify a backup of it")
	return nil
}

// follow reads on until nothing is new: the first and the last index read.
func (d *dataDir) follow(ctx context.Context, t *walfile.Tail) (first, last uint64, err error) {
	for {
		err := t.Poll(ctx)
		var gap *walfile.GapError
		var purged *walfile.PurgedError
		switch {
		case errors.As(err, &gap):
			d.note("the log has no entries between index %d and %d: a leader sent a snapshot in their place", gap.After, gap.Next)
		case errors.As(err, &purged):
			d.note("the member purged a part of its log while it was read")
		case err != nil:
			return first, last, err
		}
		if first == 0 {
			first = t.First()
		}
		if t.Last() == 0 {
			if err != nil {
				continue // behind the hole
			}
			return first, last, nil
		}
		last = t.Last()
		t.Release(last)
	}
}

// quietly does one step on a stopped member's files. Where the member was started
// meanwhile what was read is of two moments: nothing that the step found counts
// then, and no later step is done.
func (d *dataDir) quietly(step func() error) error {
	if d.disturbed != "" {
		return nil
	}
	checks, notes := len(d.report.Checks), len(d.report.Notes)
	if err := step(); err != nil {
		return err
	}
	if !d.isDisturbed() {
		return nil
	}
	d.report.Notes = d.report.Notes[:notes]
	for i, c := range d.report.Checks[checks:] {
		d.report.Checks[checks+i] = report.Check{Level: c.Level, Status: report.Unchecked, Object: c.Object, Bytes: c.Bytes, Took: c.Took, Reason: d.disturbed}
	}
	return nil
}

// isDisturbed asks whether the member is still stopped, and was all the time.
func (d *dataDir) isDisturbed() bool {
	if err := restore.CheckMemberIdle(d.dir, d.walDir); err != nil {
		d.disturbed = fmt.Sprintf("the member did not stay stopped while its files were read (%v): verify it again while it is, or verify a backup of it", err)
	} else if !maps.Equal(d.files, d.look()) {
		d.disturbed = "its files changed while they were read: keep the member stopped and verify it again, or verify a backup of it"
	}
	return d.disturbed != ""
}

// look is the size and time of each file of the database and of the log, as far
// as they can be asked: who reads them reports it.
func (d *dataDir) look() map[string]string {
	all := map[string]string{}
	for _, folder := range []string{d.walDir, filepath.Dir(d.db)} {
		list, _ := safedir.ReadDir(folder) // see above
		for _, e := range list {
			if info, err := e.Info(); err == nil {
				all[filepath.Join(folder, e.Name())] = fmt.Sprintf("%d %s", info.Size(), info.ModTime())
			}
		}
	}
	return all
}

// refuseLeft adds the checks that were asked for and not begun.
func (d *dataDir) refuseLeft() {
	for _, level := range report.Levels() {
		begun := slices.ContainsFunc(d.report.Checks, func(c report.Check) bool { return c.Level == level })
		if d.Level.Includes(level) && !begun {
			d.add(report.Check{Level: level, Object: d.dir, Reason: d.disturbed})
		}
	}
}
