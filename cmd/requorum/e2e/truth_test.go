package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/storetest"
)

// TestRandomDirectories damages, mixes, cuts, rolls back and removes members' data at random.
// The journals of acknowledged writes are the truth: if verify calls a directory good, or
// restore and recover call a result proven, that result has to be a state which the cluster
// had, with every acknowledged write in it. How often an undamaged directory is refused is a
// figure; it has to be never.
//
// Three kinds are left out, since nothing can show them: altered values (a database has no
// checksums), a majority whose disks forgot something, and the loss of the last entries of
// the only log, if the database does not have them yet either, or is damaged and another one's.
func TestRandomDirectories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.Some("3.6")[0])
	n := storetest.Amount(24, 150, 2000)
	var refused, proven int
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 32))
		var yes, sound bool
		if i%3 == 0 {
			yes, sound = w.three(r, i)
		} else {
			yes, sound = w.one(r, i)
		}
		switch {
		case yes:
			proven++
		case sound:
			refused++
			t.Errorf("directory %d is sound, and was refused", i)
		}
		if t.Failed() {
			break
		}
	}
	figure(t, "directories", n)
	figure(t, "directories called good or proven", proven)
	figure(t, "sound directories refused", refused)
}

// journal is the acknowledged writes of a history, in their order; each has a key of its own.
type journal []string

// world is the directories that the test takes its pieces from.
type world struct {
	*mixer
	pieces  []piece // of a single member
	members []piece // of three, by stage and member
	stages  int     // of these
}

// piece is one member's data directory as it was at a stage of a history.
type piece struct {
	dir     string
	history string
	wrote   journal // all that was acknowledged when it was copied
	applied journal // of these, those in the database
}

func (w *world) piece(dir, history string, wrote journal) piece {
	w.Helper()
	in := w.keys(filepath.Join(dir, "member", "snap", "db"))
	return piece{dir, history, slices.Clone(wrote), slices.DeleteFunc(slices.Clone(wrote), func(key string) bool { return !in[key] })}
}

func newWorld(t *testing.T, version string) *world {
	w := &world{mixer: newMixer(t, version), stages: 3}
	w.history("main", "", 3)
	w.history("twin", "", 2)
	w.history("back", w.restored("back-0", "main-1"), 2)
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: []string{"--snapshot-count", "30"}})
	var wrote journal
	for stage := range w.stages {
		client := c.Client(t, 0)
		for i := range 30 {
			key := fmt.Sprintf("/three/%d/%03d", stage, i)
			_, err := client.Put(t.Context(), key, key)
			require.NoError(t, err)
			wrote = append(wrote, key)
		}
		c.KillAll()
		for i := range 3 {
			dir := w.user.Path(fmt.Sprintf("three-%d-%d", stage, i))
			c.CopyData(t, i, dir)
			w.members = append(w.members, w.piece(dir, "three", wrote))
		}
		if stage < w.stages-1 {
			for i := range 3 {
				c.Restart(t, i)
			}
			c.WaitReady(t)
		}
	}
	return w
}

// history runs a member of one name and the same URLs for some stages, after a restore or
// from nothing, and keeps its directory of each.
func (w *world) history(name, after string, stages int) {
	w.Helper()
	var wrote journal
	if after != "" {
		wrote = slices.Sorted(maps.Keys(w.keys(filepath.Join(w.dir(after), "member", "snap", "db"))))
	}
	for stage := range stages {
		next := fmt.Sprintf("%s-%d", name, stage+1)
		if after == "" {
			w.write(next, "", "/"+next+"/", 30)
		} else {
			w.copied(next, after, "/"+next+"/", 30)
		}
		for i := range 30 {
			wrote = append(wrote, fmt.Sprintf("/%s/%04d", next, i))
		}
		wrote = append(wrote, fmt.Sprintf("/%s/end", next))
		w.pieces = append(w.pieces, w.piece(w.dir(next), name, wrote))
		after = next
	}
}

// one makes the directory of a single member, and asks verify, restore and recover.
func (w *world) one(r *rand.Rand, i int) (yes, sound bool) {
	w.Helper()
	dir := filepath.Join(w.TempDir(), "m1")
	defer os.RemoveAll(dir)
	db := w.pieces[r.IntN(len(w.pieces))]
	log := db
	if r.IntN(3) == 0 {
		log = w.pieces[r.IntN(len(w.pieces))]
	}
	w.copy(db.dir, dir)
	what := fmt.Sprintf("%d: database %s", i, filepath.Base(db.dir))
	if log.dir != db.dir {
		require.NoError(w, os.RemoveAll(filepath.Join(dir, "member", "wal")))
		w.copy(filepath.Join(log.dir, "member", "wal"), filepath.Join(dir, "member", "wal"))
		what += ", log " + filepath.Base(log.dir)
	}
	done := w.damage(r, dir, true)
	sound = log.dir == db.dir && len(done) == 0
	what = fmt.Sprintf("%s, %v", what, done)

	needed := db.wrote
	if len(log.wrote) > len(needed) {
		needed = log.wrote
	}
	least := needed
	forgot := slices.ContainsFunc(done, func(d string) bool { return strings.Contains(d, "the log") })
	if forgot {
		least = db.applied
	}
	mixed := db.history != log.history
	if mixed && slices.ContainsFunc(done, func(d string) bool { return strings.Contains(d, "database") || strings.Contains(d, "page") }) {
		// Of a database that cannot be read nothing shows which history it was of, and so not
		// how far a log reached that lost its end.
		needed, mixed = log.wrote, false
		if least = log.wrote; forgot {
			least = nil
		}
	}
	file := filepath.Join(w.TempDir(), "state.db")
	good := w.user.Run(w, "verify", "--data-dir", dir, "--level", "structure")
	restored := w.user.Run(w, "restore", "--from-data-dir", dir, "--to-snapshot", file)
	shown := restored.Code == exitOK
	switch {
	case shown:
		w.compare(what+": restore", file, needed, least, mixed)
	case good.Code == exitOK:
		w.Errorf("%s: verify calls it good, and it cannot be restored: %s%s", what, good, restored)
	}
	recovered := w.recover(what, needed, least, mixed, "m1="+dir)
	if sound && (!shown || !recovered || good.Code != exitOK) {
		w.Logf("%s: %s%s", what, good, restored)
		return false, true
	}
	return shown || recovered, sound
}

// three makes the directories of three members, and asks recover. One may have forgotten
// something, all may have a damaged database.
func (w *world) three(r *rand.Rand, i int) (yes, sound bool) {
	w.Helper()
	var local, what []string
	newest := w.members[len(w.members)-1]
	hurt := 0
	back := r.IntN(3) // the member that may be rolled back as a whole
	for m := range 3 {
		stage := w.stages - 1
		if m == back && r.IntN(2) == 0 {
			stage = r.IntN(w.stages)
		}
		p := w.members[3*stage+m]
		dir := filepath.Join(w.TempDir(), fmt.Sprintf("m%d", m+1))
		defer os.RemoveAll(dir)
		w.copy(p.dir, dir)
		var done []string
		if r.IntN(3) == 0 {
			done = w.damage(r, dir, m == back)
		}
		if len(done) > 0 || stage < w.stages-1 {
			hurt++
		}
		what = append(what, fmt.Sprintf("m%d of stage %d %v", m+1, stage, done))
		local = append(local, fmt.Sprintf("m%d=%s", m+1, dir))
	}
	sound = hurt == 0
	return w.recover(fmt.Sprintf("%d: %s", i, strings.Join(what, ", ")), newest.wrote, newest.wrote, false, local...), sound
}

// recover reports whether recover calls the result proven, and then checks it.
func (w *world) recover(what string, needed, least journal, mixed bool, local ...string) bool {
	w.Helper()
	out := w.TempDir()
	file := filepath.Join(out, "state.db")
	e := w.user.Run(w, "recover", "--local", strings.Join(local, ","), "--to-snapshot", file,
		"--plan", filepath.Join(out, "plan.json"), "--data-dir", filepath.Join(out, "new"), "--yes")
	if e.Code != exitOK {
		return false
	}
	w.compare(what+": recover", file, needed, least, mixed)
	return true
}

// compare wants a database to hold the first writes of a journal, with at least some.
func (w *world) compare(what, file string, all, least journal, mixed bool) {
	w.Helper()
	got := w.keys(file)
	missing := slices.DeleteFunc(slices.Clone(least), func(key string) bool { return got[key] })
	n := 0
	for n < len(all) && got[all[n]] {
		delete(got, all[n])
		n++
	}
	if mixed || len(missing) > 0 || len(got) > 0 {
		w.Errorf("%s: called good or proven: two histories %t, missing %v, not among the first %d of %d: %v",
			what, mixed, missing, n, len(all), slices.Sorted(maps.Keys(got)))
	}
}

func (w *world) keys(database string) map[string]bool {
	w.Helper()
	got := map[string]bool{}
	for _, row := range storetest.ReadContents(w, database)["key"] {
		var kv mvccpb.KeyValue
		require.NoError(w, proto.Unmarshal(row, &kv))
		if len(kv.Key) > 0 { // the row that raises the revision
			got[string(kv.Key)] = true
		}
	}
	return got
}

func (w *world) copy(from, to string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	require.NoError(w, os.MkdirAll(filepath.Dir(to), 0o700))
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		w.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// damage does up to two things to a directory, and names them.
func (w *world) damage(r *rand.Rand, dir string, forget bool) (done []string) {
	w.Helper()
	db := filepath.Join(dir, "member", "snap", "db")
	segment := func() string {
		all, _ := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
		if len(all) == 0 {
			return ""
		}
		return all[len(all)-1]
	}
	alter := func(path string, change func(b []byte) []byte) {
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) || len(b) == 0 {
			return
		}
		require.NoError(w, err)
		b = change(b)
		require.NoError(w, os.WriteFile(path, bytes.TrimRight(b, "\x00"), 0o600)) // zeros take no room
		require.NoError(w, os.Truncate(path, int64(len(b))))
	}
	used := func(b []byte) int { return max(1, len(bytes.TrimRight(b, "\x00"))) }
	type kind struct {
		name string
		do   func()
	}
	forgets := []kind{
		{"no log", func() { require.NoError(w, os.RemoveAll(filepath.Join(dir, "member", "wal"))) }},
		{"the log zeroed from a place on", func() { alter(segment(), func(b []byte) []byte { clear(b[r.IntN(used(b)):]); return b }) }},
		{"the log cut", func() { alter(segment(), func(b []byte) []byte { return b[:r.IntN(used(b))] }) }},
		{"the log cut in the zeros", func() { alter(segment(), func(b []byte) []byte { return b[:used(b)+r.IntN(len(b)-used(b)+1)] }) }},
		{"a byte of the log", func() {
			alter(segment(), func(b []byte) []byte { b[r.IntN(used(b))] ^= byte(1 + r.IntN(255)); return b })
		}},
		{"sectors of the log zeroed", func() {
			alter(segment(), func(b []byte) []byte {
				at := r.IntN(used(b)) &^ 511
				clear(b[at:min(len(b), at+512*(1+r.IntN(3)))])
				return b
			})
		}},
	}
	kinds := []kind{
		{"no database", func() { _ = os.Remove(db) }},
		{"a page zeroed", func() {
			alter(db, func(b []byte) []byte { at := r.IntN(len(b)/4096) * 4096; clear(b[at : at+4096]); return b })
		}},
		{"a page over another", func() {
			alter(db, func(b []byte) []byte {
				from, to := r.IntN(len(b)/4096)*4096, r.IntN(len(b)/4096)*4096
				copy(b[to:to+4096], b[from:from+4096])
				return b
			})
		}},
		{"database cut", func() { alter(db, func(b []byte) []byte { return b[:r.IntN(len(b))] }) }},
		{"no raft snapshots", func() {
			all, _ := filepath.Glob(filepath.Join(dir, "member", "snap", "*.snap"))
			for _, path := range all {
				require.NoError(w, os.Remove(path))
			}
		}},
	}
	if forget {
		kinds = append(kinds, forgets...)
	}
	for range r.IntN(3) {
		k := kinds[r.IntN(len(kinds))]
		k.do()
		done = append(done, k.name)
	}
	return done
}
