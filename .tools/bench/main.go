// Command bench measures requorum side by side with etcdctl and etcdutl, on a
// database that it makes, and writes the tables of docs/benchmarks.md.
//
//	go run . -bin ../../.cache/bin -out ../../docs/benchmarks.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// seed makes every run load the same objects.
const seed = 2026

// bench is one run.
type bench struct {
	bin        string // where requorum, versitygw and etcd-3.7/ are
	dir        string // of this run, removed at its end
	log        *slog.Logger
	recipient  string
	s3Endpoint string
}

func (b *bench) path(elements ...string) string {
	return filepath.Join(append([]string{b.dir}, elements...)...)
}
func (b *bench) requorum() string           { return filepath.Join(b.bin, "requorum") }
func (b *bench) etcd(program string) string { return filepath.Join(b.bin, "etcd-3.7", program) }

type options struct {
	bin, out, dir                string
	mebibytes                    int64
	backupRounds, restoreRounds  int
	skipSizes, skipRestore, keep bool
	skipSnapshots, skipLog       bool
	skipVerify, skipAgent        bool
	largest                      byteSize
	verifyRounds, drillRounds    int
	agentRounds                  int
	skipRecover                  bool
	recoverRounds                int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "load":
			return loadMain(ctx, args[1:], os.Stdout)
		case "replay":
			return replayMain(ctx, args[1:])
		case "client":
			return clientMain(ctx, args[1:])
		}
	}
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.StringVar(&o.bin, "bin", "../../.cache/bin", "folder with requorum, versitygw and etcd-3.7/")
	flags.StringVar(&o.out, "out", "", "the document whose tables are written anew, those of parts that are left out excepted (default: print them)")
	flags.StringVar(&o.dir, "dir", "", "make the run's folder here; needs a real disk with room for 20 times the database (default: beside -bin)")
	flags.Int64Var(&o.mebibytes, "size", 1100, "database in use, in MiB")
	flags.IntVar(&o.backupRounds, "backup-rounds", 3, "counted rounds of backups")
	flags.IntVar(&o.restoreRounds, "restore-rounds", 3, "counted rounds of restores")
	flags.BoolVar(&o.skipSizes, "skip-sizes", false, "leave out what other sizes take")
	flags.BoolVar(&o.skipRestore, "skip-restore", false, "leave out the restores")
	flags.BoolVar(&o.skipSnapshots, "skip-snapshots", false, "leave out backups and restores")
	flags.BoolVar(&o.skipLog, "skip-log", false, "leave out the log: its replay, and archiving")
	flags.BoolVar(&o.skipVerify, "skip-verify", false, "leave out verify: the structure of a snapshot, and drills")
	flags.BoolVar(&o.skipAgent, "skip-agent", false, "leave out the agent: what it costs beside a cluster, and its memory")
	flags.Var(&o.largest, "largest", "also measure a database of this size, such as 8GiB, and the memory of its agent; needs room for 5 times as much")
	flags.IntVar(&o.verifyRounds, "verify-rounds", 3, "counted rounds of verify, cold and again warm")
	flags.IntVar(&o.drillRounds, "drill-rounds", 2, "counted rounds of drills")
	flags.IntVar(&o.agentRounds, "agent-rounds", 3, "rounds of agents beside a cluster")
	flags.BoolVar(&o.skipRecover, "skip-recover", false, "leave out recoveries: a cluster of three after kill -9 of all members")
	flags.IntVar(&o.recoverRounds, "recover-rounds", 2, "counted rounds of recoveries")
	flags.BoolVar(&o.keep, "keep", false, "keep the run's folder, to look into it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if min(o.backupRounds, o.restoreRounds, o.verifyRounds, o.drillRounds, o.agentRounds, o.recoverRounds) < 1 {
		return errors.New("no rounds were asked for: want at least 1 of each; -skip-… leaves a part out")
	}
	return o.run(ctx)
}

// partly says that something is left out, so that an older table of it stays.
func (o *options) partly() bool {
	return o.skipSizes || o.skipRestore || o.skipSnapshots || o.skipLog || o.skipVerify || o.skipAgent || o.skipRecover
}

func (o *options) run(ctx context.Context) (err error) {
	b := &bench{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if b.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if o.dir == "" {
		o.dir = filepath.Dir(b.bin)
	}
	have, err := free(o.dir)
	if err != nil {
		return err
	}
	if need := max(20*o.mebibytes<<20, 5*int64(o.largest)); have < need {
		return fmt.Errorf("%s has %s free, %s are needed: give another folder with -dir", o.dir, mebibytes(have), mebibytes(need))
	}
	if b.dir, err = os.MkdirTemp(o.dir, "bench-"); err != nil {
		return err
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	defer func() {
		if !o.keep {
			err = errors.Join(err, os.RemoveAll(b.dir))
		}
	}()
	r, err := o.measureAll(ctx, b)
	if err != nil {
		return err
	}
	if o.out == "" {
		_, err = fmt.Fprint(os.Stdout, r.markdown())
		return err
	}
	return r.writeInto(o.out, o.partly())
}
