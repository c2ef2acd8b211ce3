package restore

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// Promise 1: wherever a run was killed, it counts as done when all its members are free
// to start, and at no step before. Where it had all in place it is completed without its
// image, and is not taken for what an old member left.
func TestPromise1Restored(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 5})
	// As of a recovery without a repository: with no timeline.
	recovery := json.RawMessage(`"the decision"`)
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			begun, inPlace := 0, 0
			for step := 1; ; step++ {
				dir := fastDir(t)
				killed, out := runChild(t, childJob{Image: image, Request: l.prepare(t, dir, image), Recovery: recovery, KillAt: step})
				if !killed && out != "" {
					t.Fatalf("step %d: %s", step, out)
				}
				data := filepath.Join(dir, "data", "m1")
				r, free, err := Restored(data)
				require.NoError(t, err)
				unfinished, err := Incomplete(data)
				require.NoError(t, err)
				if free == killed || unfinished != nil && free {
					t.Errorf("step %d, killed %t: free %t, unfinished %+v", step, killed, free, unfinished)
				}
				if unfinished != nil {
					begun++
				}
				if r == nil {
					if !killed || free {
						t.Errorf("step %d, killed %t: nothing is restored", step, killed)
					}
					_, err = Execute(t.Context(), plan(t, l.request(t, dir, image)), nil, ExecOptions{})
					require.Error(t, err, "step %d: it is built without an image", step)
					continue
				}
				if len(r.Members) != 3 || !r.CompletedEarlier || !reflect.DeepEqual(r.Plan.Recovery, recovery) {
					t.Errorf("step %d: restored is %+v by %+v", step, r, r.Plan.Recovery)
				}
				if free {
					break
				}
				inPlace++
				again, err := Execute(t.Context(), r.Plan, nil, ExecOptions{})
				if err != nil || again.Plan.ID != r.Plan.ID {
					t.Fatalf("killed at step %d, and run again: %+v, %v", step, again, err)
				}
				for _, m := range r.Members {
					if _, free, err := Restored(m.DataDir); err != nil || !free {
						t.Errorf("killed at step %d, and run again: %s is free %t, %v", step, m.Name, free, err)
					}
					require.NoError(t, CheckStartable(m.DataDir, m.WALDir), "killed at step %d, and run again", step)
				}
			}
			if begun == 0 || inPlace < 3 {
				t.Errorf("killed %d times with a member begun, and %d with all in place: the test shows little", begun, inPlace)
			}
		})
	}
	if r, free, err := Restored(filepath.Join(t.TempDir(), "none")); r != nil || free || err != nil {
		t.Errorf("of nothing: %+v, %t, %v", r, free, err)
	}
}

// request is prepareAgain's, with the image.
func (l layout) request(t *testing.T, dir, path string) Request {
	t.Helper()
	req := l.prepareAgain(dir)
	req.Image = open(t, path)
	return req
}
