package job

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
)

// makeToKill makes a synthetic snapshot, and waits for its end in the phase that
// the environment names.
func makeToKill(dir, scratch string) error {
	ctx := context.Background()
	repo, err := openRig(ctx, dir)
	if err != nil {
		return err
	}
	_, err = MakeSynthetic(ctx, SyntheticOptions{Repo: repo, Timeline: repository.TimelineID{ClusterID: 7, N: 1}, ScratchDir: scratch, ID: killedID,
		Progress: func(phase string, _, _ int64) {
			if phase == os.Getenv("KILL_IN") {
				fmt.Fprintln(os.Stdout, "there")
				select {}
			}
		}})
	return err
}

const killedID = "20260102T060000Z-0a1b2c"

// Promise 5: killed in any phase it leaves no backup, and the next attempt, which
// has the same ID, is made, and clears the scratch folder.
func TestPromise5Killed(t *testing.T) {
	phases := []string{"base", "replay", "prove", "structure", "store", "check"}
	if testing.Short() {
		phases = []string{"replay", "store"}
	}
	for _, phase := range phases {
		t.Run(phase, func(t *testing.T) {
			r := newLog(t)
			r.puts(20)
			r.full()
			r.puts(30)
			r.archive(r.entries, 4)
			cmd := exec.Command(os.Args[0], makeArgument, r.dir, r.scratch)
			cmd.Env = append(os.Environ(), "KILL_IN="+phase)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = out.Read(make([]byte, 1))
			require.NoError(t, err, "the phase never came")
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			if left := r.catalog(); len(left.Manifests) != 1 {
				t.Errorf("catalog %+v", left)
			}
			o := r.options()
			o.ID = killedID
			m, err := MakeSynthetic(t.Context(), o)
			if err != nil || m.ID != killedID || m.Facts.RaftIndex != 52 {
				t.Errorf("the next attempt: %+v, %v", m, err)
			}
			t.Log(m.Object.Name)
			r.tidy()
		})
	}
}
