package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
)

// pointOptions are the point that a restore goes back to.
type pointOptions struct {
	set          *pflag.FlagSet
	latest       bool
	at           string
	nearest      bool
	revision     int64
	index        uint64
	before       string
	beforePrefix string
	target       walreplay.Target // what these choose, once they were checked

	replay walreplay.Options
}

// targetFlags choose the point; only one of them can be given.
var targetFlags = []string{"latest", "at", "revision", "index", "before", "before-prefix"}

// replayFlags say how the log is replayed.
var replayFlags = []string{"scratch-dir", "min-lease-ttl", "lease-checkpoint-persist", "source-version", "replay-engine"}

func (o *pointOptions) addFlags(f *pflag.FlagSet) {
	o.set = f
	f.BoolVar(&o.latest, "latest", false, "restore the end of the archived log (the default without an ID)")
	f.StringVar(&o.at, "at", "", "restore the state at this `time`: 2026-01-02T15:04:05Z, '2026-01-02 15:04:05' in this machine's zone, -10m for ten minutes ago, or -10d")
	f.BoolVar(&o.nearest, "at-nearest", false, "with --at: where the state at that time is not known to the second, take the nearest observation")
	f.Int64Var(&o.revision, "revision", 0, "restore the last state at revision `N`")
	f.Uint64Var(&o.index, "index", 0, "restore the state after the raft entry with index `N`")
	f.StringVar(&o.before, "before", "", "restore the state just before this `key`, and what was deleted with it, was last changed or deleted")
	f.StringVar(&o.beforePrefix, "before-prefix", "", "restore the state just before the keys with this `prefix` were last changed or deleted, all of them")
	f.StringVar(&o.replay.ScratchDir, "scratch-dir", "", "the `directory` to replay the log and unpack a file in (default: beside the first data directory); removed afterwards is what was made in it")
	f.StringVar(&o.replay.SourceVersion, "source-version", "", "the etcd whose members applied the log, such as 3.5.9, where it is older than 3.5.33, 3.6.14 or 3.7.1 and authentication was on or no space was left (default: that of the backup's member)")
	durationVar(f, &o.replay.MinLeaseTTL, "min-lease-ttl", engine.DefaultMinLeaseTTL, time.Millisecond, "what the source's members raised shorter leases to: 1.5 times their election timeout, rounded up to seconds")
	f.BoolVar(&o.replay.PersistCheckpoints, "lease-checkpoint-persist", false, "the source was etcd below 3.6 with --experimental-enable-lease-checkpoint-persist")
	replayEngineVar(f, &o.replay.Engine)
}

// given are the flags that choose a point.
func (o *pointOptions) given() []string {
	var names []string
	for _, name := range targetFlags {
		if o.set.Changed(name) {
			names = append(names, name)
		}
	}
	return names
}

// asked is the point in the user's words; empty where none was asked for.
func (o *pointOptions) asked() string {
	names := o.given()
	if len(names) == 0 {
		return ""
	}
	text := "--" + names[0]
	if names[0] != "latest" {
		text += " " + o.set.Lookup(names[0]).Value.String()
	}
	if o.nearest {
		text += " --at-nearest"
	}
	return text
}

// check reads the point that the flags choose, the end of the log without any.
func (o *pointOptions) check(now time.Time) (err error) {
	names, t := o.given(), &o.target
	switch {
	case len(names) > 1:
		return usageError{fmt.Errorf("--%s exclude each other: one point can be restored", strings.Join(names, " and --"))}
	case o.nearest && !o.set.Changed("at"):
		return usageError{errors.New("--at-nearest is for --at")}
	case len(names) == 0:
		return nil
	}
	switch names[0] {
	case "latest":
		if !o.latest {
			err = errors.New("--latest=false: give the point that is wanted instead")
		}
	case "at":
		*t = walreplay.Target{Kind: walreplay.AtTime, Nearest: o.nearest}
		t.Time, err = parseInstant(o.at, now)
	case "revision":
		*t = walreplay.Target{Kind: walreplay.AtRevision, Revision: o.revision}
		if o.revision < 1 {
			err = fmt.Errorf("--revision %d: want 1 or more", o.revision)
		}
	case "index":
		*t = walreplay.Target{Kind: walreplay.AtIndex, Index: o.index}
		if o.index < 1 {
			err = errors.New("--index 0: want 1 or more")
		}
	case "before":
		*t = walreplay.Target{Kind: walreplay.BeforeKey, Key: o.before}
		if o.before == "" {
			err = errors.New("--before wants a key")
		}
	case "before-prefix":
		*t = walreplay.Target{Kind: walreplay.BeforePrefix, Key: o.beforePrefix}
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// parseInstant reads a point in time: of RFC 3339, without a zone in this
// machine's, or as a duration back from now.
func parseInstant(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if wall, err := time.Parse(layout, s); err == nil {
			return onTheWall(wall, time.Local, s)
		}
	}
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		if d, err := yamlfile.ParseDuration(ago); err == nil {
			return now.Add(-d.Std()), nil
		}
	}
	return time.Time{}, fmt.Errorf("--at %s: want a time such as 2026-01-02T15:04:05Z, '2026-01-02 15:04:05' in this machine's zone, -10m or -10d", s)
}

// onTheWall is when the clocks of a zone showed a time. Where its offset changes
// they show some twice and some never: to guess would restore a state up to an
// hour off.
func onTheWall(wall time.Time, zone *time.Location, s string) (time.Time, error) {
	const shown = time.DateTime
	var could, did []time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} { // before a change, and behind it
		_, offset := wall.Add(near).In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		if len(could) > 0 && could[0].Equal(t) {
			continue
		}
		could = append(could, t)
		if t.Format(shown) == wall.Format(shown) {
			did = append(did, t)
		}
	}
	switch {
	case len(did) == 1:
		return did[0], nil
	case len(did) > 1:
		return time.Time{}, fmt.Errorf("--at %s: the clocks were set back and showed that twice: say which, %s or %s", s, did[0].Format(time.RFC3339), did[1].Format(time.RFC3339))
	}
	return time.Time{}, fmt.Errorf("--at %s: the clocks were set forward and never showed that: give the time with its zone, such as %s or %s", s, could[0].Format(time.RFC3339), could[1].Format(time.RFC3339))
}
