//go:build unix

package disk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// Environment of the child process that the test kills.
const (
	childRoot  = "REQUORUM_TEST_DISK_ROOT"
	childRound = "REQUORUM_TEST_DISK_ROUND"
)

// kills is how many random points the writer is killed at.
const kills = 25

func TestMain(m *testing.M) {
	if root := os.Getenv(childRoot); root != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(root, os.Getenv(childRound)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes one object after the other, in two streams, and
// prints the name of each once it is committed.
func writeUntilKilled(root, round string) error {
	s, err := New(root)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for stream := range 2 {
		go func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("r%s/s%d/f%d/%d", round, stream, n%3, n)
				if err := writeSlowly(s, name); err != nil {
					failed <- err
					return
				}
				// One write(2): it is out before the next object begins.
				if _, err := os.Stdout.WriteString(name + "\n"); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// writeSlowly writes in several pieces, so that most kills come in between.
func writeSlowly(s *Sink, name string) error {
	ctx := context.Background()
	w, err := s.Create(ctx, name, sinks.CreateOptions{})
	if err != nil {
		return err
	}
	for piece := range slices.Chunk(content(name), 30_000) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	_, err = w.Commit(ctx)
	return err
}

// content is what an object of that name must hold: its own length, then
// bytes that follow from the name.
func content(name string) []byte {
	seed := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	data := sinktest.Random(seed, 8+int64(seed%200_000))
	binary.BigEndian.PutUint64(data, uint64(len(data)))
	return data
}

// TestPromise1Killed kills a writing process with SIGKILL at random points.
// Every object that is visible then is whole, every one that was acknowledged
// is there, and after the next Create nothing else is left.
func TestPromise1Killed(t *testing.T) {
	s := freshSink(t)
	caught := 0
	for round := range kills {
		acknowledged := killOne(t, s, round)
		for _, name := range acknowledged {
			_, err := s.Stat(t.Context(), name)
			require.NoError(t, err, "round %d: acknowledged, and then", round)
		}
		listed := checkWhole(t, s)
		if len(leftovers(t, s, listed)) > 0 {
			caught++
		}
		w, err := s.Create(t.Context(), "next", sinks.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, w.Abort())
		if left := leftovers(t, s, listed); len(left) > 0 {
			t.Errorf("round %d: after the next Create there are still %q", round, left)
		}
		for _, name := range listed {
			require.NoError(t, s.Delete(t.Context(), name))
		}
	}
	if caught == 0 {
		t.Errorf("none of %d kills came in the middle of an object: the sweep was not tested", kills)
	}
}

// killOne runs the child and kills it, and returns what it acknowledged.
func killOne(t *testing.T, s *Sink, round int) []string {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childRoot+"="+s.path, fmt.Sprintf("%s=%d", childRound, round))
	var complaint bytes.Buffer
	child.Stderr = &complaint
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var names []string
	lines := bufio.NewScanner(out)
	if lines.Scan() { // it is at work
		names = append(names, lines.Text())
		kill := time.AfterFunc(time.Duration(rand.IntN(60_000))*time.Microsecond, func() {
			child.Process.Kill() // Wait shows how it ended
		})
		defer kill.Stop()
		for lines.Scan() {
			names = append(names, lines.Text())
		}
	}
	err = child.Wait()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended by itself: %v\n%s", err, complaint.String())
	}
	return names
}

// checkWhole reads every object and returns their names.
func checkWhole(t *testing.T, s *Sink) (names []string) {
	t.Helper()
	for object, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		names = append(names, object.Name)
		got, err := sinks.Get(t.Context(), s, object.Name, 1<<20)
		require.NoError(t, err)
		if !bytes.Equal(got, content(object.Name)) {
			t.Errorf("%s is not whole: %d bytes", object.Name, len(got))
		}
	}
	return names
}

// leftovers are the files in the root that are not the objects listed. Empty
// folders are none: a process may be killed between making one and using it.
func leftovers(t *testing.T, s *Sink, objects []string) (left []string) {
	t.Helper()
	for _, path := range tree(t, s.path) {
		info, err := os.Lstat(filepath.Join(s.path, path))
		require.NoError(t, err)
		if !info.IsDir() && !slices.Contains(objects, filepath.ToSlash(path)) {
			left = append(left, path)
		}
	}
	return left
}
