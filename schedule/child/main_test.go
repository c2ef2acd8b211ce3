package child

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

	"golang.org/x/sys/unix"
)

// childArgument makes this binary a child, parentArgument the parent of one.
const (
	childArgument  = "be-a-child"
	parentArgument = "be-a-parent"
)

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != childArgument && os.Args[1] != parentArgument {
		os.Exit(m.Run())
	}
	var err error
	if os.Args[1] == childArgument {
		err = Serve(context.Background(), os.Stdin, os.Stdout, work)
	} else {
		_, err = Run(context.Background(), self(), task{Do: "wait", Dir: os.Args[2]}, nil, Limits{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func self() Command { return Command{Path: os.Args[0], Args: []string{childArgument}} }

// task is what the tests ask a child for.
type task struct {
	Do  string
	Dir string
	N   int64
}

// limitsSeen is what a child has to say of itself.
type limitsSeen struct {
	Data, Nice int64
	GoLimit    string
}

var held [][]byte

func work(ctx context.Context, request json.RawMessage, progress func(string, int64, int64)) (any, error) {
	var t task
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
		nice, errNice := unix.Getpriority(unix.PRIO_PROCESS, 0)
		return limitsSeen{Data: int64(data.Cur), Nice: int64(20 - nice), GoLimit: os.Getenv("GOMEMLIMIT")}, errors.Join(err, errNice)
	case "fail":
		return nil, errors.New("backup x in y: it is broken")
	case "shortage":
		return nil, fmt.Errorf("map a file: %w", syscall.ENOMEM)
	case "panic":
		fmt.Fprintln(os.Stderr, "before it")
		panic("what a pity")
	case "abort": // as the runtime ends where it does not know what hit it
		if t.N > 0 {
			b := make([]byte, t.N)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
		}
		time.Sleep(4 * watchEvery)
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
			held = append(held, make([]byte, 1<<20))
			for i := 0; i < 1<<20; i += 4096 {
				held[len(held)-1][i] = 1
			}
			progress(fmt.Sprint("eat ", done>>24), done, t.N) // each phase is told once
		}
		return len(held), nil
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
	return nil, fmt.Errorf("no such task: %q", t.Do)
}
