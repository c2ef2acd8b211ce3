package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/verify/serve"
)

// childArgument makes this binary a child, parentArgument the parent of one, and
// makeArgument lets it make a synthetic snapshot and be killed: the repository's
// folder and the scratch folder follow.
const (
	childArgument  = "be-a-child"
	parentArgument = "be-a-parent"
	makeArgument   = "synthetic-to-kill"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 1 << 20 // saves the 128 MiB that etcd's log takes while it is made
	ctx := context.Background()
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case childArgument:
		err = ServeProcess(ctx, os.Stdin, os.Stdout, childWork)
	case parentArgument:
		_, err = run(ctx, selfCommand(), childAsked{Do: "wait", Dir: os.Args[2]}, nil, 0)
	case serve.MembersCommand:
		err = serve.Members(ctx, os.Stdin, os.Stdout)
	case makeArgument:
		err = makeToKill(os.Args[2], os.Args[3])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs a child, and gives its result as it was written.
func run(ctx context.Context, c Command, asked childAsked, onProgress func(phase string, done, total int64), memory int64) (result json.RawMessage, err error) {
	err = RunProcess(ctx, c, asked, &result, onProgress, memory)
	return result, err
}

func selfCommand() Command { return Command{Path: os.Args[0], Args: []string{childArgument}} }

// childAsked is what the tests ask a child for.
type childAsked struct {
	Do  string
	Dir string
	N   int64
}

// limitsSeen is what a child has to say of itself.
type limitsSeen struct {
	Data    int64
	GoLimit string
}

var heldMemory [][]byte

func childWork(ctx context.Context, request json.RawMessage, progress func(string, int64, int64)) (any, error) {
	var t childAsked
	if err := json.Unmarshal(request, &t); err != nil {
		return nil, err
	}
	switch t.Do {
	case "count":
		for i := range t.N {
			progress("count", i+1, t.N)
		}
		return map[string]int64{"counted": t.N}, nil
	case "limits":
		var data unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_DATA, &data)
		return limitsSeen{Data: int64(data.Cur), GoLimit: os.Getenv("GOMEMLIMIT")}, err
	case "fail":
		return nil, errors.New("backup x in y: it is broken")
	case "shortage":
		return nil, fmt.Errorf("map a file: %w", syscall.ENOMEM)
	case "panic":
		fmt.Fprintln(os.Stderr, "before it")
		panic("what a pity")
	case "abort": // as the runtime ends where it does not know what hit it
		if err := syscall.Kill(os.Getpid(), syscall.SIGABRT); err != nil {
			return nil, err
		}
		time.Sleep(time.Minute)
	case "exit":
		os.Exit(7)
	case "die":
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "garbage":
		fmt.Fprintln(os.Stdout, "hello")
		return 1, nil
	case "eat":
		for done := int64(0); done < t.N; done += 1 << 20 {
			heldMemory = append(heldMemory, make([]byte, 1<<20))
			for i := 0; i < 1<<20; i += 4096 {
				heldMemory[len(heldMemory)-1][i] = 1
			}
			progress(fmt.Sprint("eat ", done>>24), done, t.N) // each phase is reported once
		}
		return len(heldMemory), nil
	case "churn": // far more than the limit in all, little at a time
		var kept []byte
		for range t.N >> 20 {
			kept = make([]byte, 1<<20)
			for i := 0; i < len(kept); i += 4096 {
				kept[i] = 1
			}
		}
		return len(kept), nil
	case "wait":
		if err := os.WriteFile(filepath.Join(t.Dir, "pid"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return nil, err
		}
		progress("wait", 1, 1)
		<-ctx.Done()
		return nil, errors.Join(context.Cause(ctx), os.WriteFile(filepath.Join(t.Dir, "tidied"), []byte(context.Cause(ctx).Error()), 0o600))
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		progress("deaf", 1, 1)
		time.Sleep(time.Minute)
	}
	return nil, fmt.Errorf("no such childAsked: %q", t.Do)
}
