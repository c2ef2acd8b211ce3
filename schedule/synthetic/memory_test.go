package synthetic

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/requorum/requorum/schedule/child"
	"github.com/requorum/requorum/sinks/repository"
)

// childArgument lets this binary be the child that makes a synthetic snapshot.
const childArgument = "synthetic-child"

// childTask is what it is asked for.
type childTask struct{ Repo, Scratch string }

// childDone is what it answers.
type childDone struct {
	ID     string
	Index  uint64
	Memory string // lines of /proc/self/status
}

func makeInChild(ctx context.Context, request json.RawMessage, progress func(string, int64, int64)) (any, error) {
	var t childTask
	if err := json.Unmarshal(request, &t); err != nil {
		return nil, err
	}
	repo, err := openRepository(ctx, t.Repo)
	if err != nil {
		return nil, err
	}
	m, err := Make(ctx, Options{Repo: repo, Timeline: repository.TimelineID{ClusterID: 7, N: 1}, ScratchDir: t.Scratch, Progress: progress})
	if err != nil {
		return nil, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "VmData") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return childDone{m.ID, m.Facts.RaftIndex, strings.Join(lines, ", ")}, nil
}

// The memory that a plan names is enough for the child that does the work, with
// that as its hard limit; and far too little of it is told as such.
func TestPlannedMemoryIsEnough(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits of memory are Linux's")
	}
	if raced {
		t.Skip("the race detector takes memory of its own")
	}
	r := newLog(t)
	r.puts(20)
	r.full()
	for i := range 60_000 {
		r.put(fmt.Sprintf("/registry/pods/%d", i), strings.Repeat("value ", 30))
	}
	r.archive(r.entries, 5000)
	p, err := PlanOf(t.Context(), r.options())
	if err != nil {
		t.Fatal(err)
	}
	run := func(memory int64) (json.RawMessage, error) {
		return child.Run(t.Context(), child.Command{Path: os.Args[0], Args: []string{childArgument}}, childTask{r.dir, r.scratch}, nil, child.Limits{Memory: memory})
	}
	if _, err := run(64 << 20); err == nil || !strings.Contains(err.Error(), "64 MiB that job-memory allows") {
		t.Errorf("with 64 MiB: %v", err)
	}
	raw, err := run(p.Memory)
	var done childDone
	if err != nil || json.Unmarshal(raw, &done) != nil || done.Index != p.Index {
		t.Fatalf("%s, %v", raw, err)
	}
	t.Logf("planned %d MiB for %d entries; %s", p.Memory>>20, p.Entries, done.Memory)
	r.tidy()
}
