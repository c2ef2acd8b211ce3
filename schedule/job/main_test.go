package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/requorum/requorum/verify/serve"
)

// childArgument makes this binary a child, parentArgument the parent of one.
const (
	childArgument  = "be-a-child"
	parentArgument = "be-a-parent"
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
		err = childWork(os.Args[2], os.Args[3])
	case parentArgument:
		_, err = RunCommand(ctx, selfCommand("wait", os.Args[2], 0))
	case serve.MembersCommand:
		err = serve.Members(ctx, os.Stdin, os.Stdout)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "requorum:", err)
		os.Exit(1)
	}
}

// selfCommand makes this binary do something, as childWork says.
func selfCommand(do, argument string, memory int64) Command {
	return Command{Path: os.Args[0], Args: []string{childArgument, do, argument}, Memory: memory}
}

var heldMemory [][]byte

func childWork(do, argument string) error {
	const much = 2 << 30
	switch do {
	case "report":
		fmt.Fprintln(os.Stdout, argument, os.Getenv("REQUORUM_REPO"))
		fmt.Fprintln(os.Stderr, "note: a remark")
		return nil
	case "fail":
		fmt.Fprintln(os.Stdout, "half a report")
		return errors.New("backup x in y: it is broken")
	case "shortage":
		return fmt.Errorf("map a file: %w", syscall.ENOMEM)
	case "panic":
		fmt.Fprintln(os.Stderr, "before it")
		panic("what a pity")
	case "abort": // as the runtime ends where it does not know what hit it
		if err := syscall.Kill(os.Getpid(), syscall.SIGABRT); err != nil {
			return err
		}
		time.Sleep(time.Minute)
	case "exit":
		os.Exit(7)
	case "die":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "eat":
		for range much >> 20 {
			heldMemory = append(heldMemory, touched())
		}
		return nil
	case "churn": // far more than the limit in all, little at a time
		for range much >> 20 {
			heldMemory = [][]byte{touched()}
		}
		return nil
	case "wait":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := os.WriteFile(filepath.Join(argument, "pid"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return err
		}
		<-ctx.Done()
		return errors.Join(errors.New("interrupted"), os.WriteFile(filepath.Join(argument, "tidied"), nil, 0o600))
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		if err := os.WriteFile(filepath.Join(argument, "pid"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return err
		}
		time.Sleep(time.Minute)
	}
	return fmt.Errorf("no such thing to do: %q", do)
}

// touched is a mebibyte that is in memory.
func touched() []byte {
	b := make([]byte, 1<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}
