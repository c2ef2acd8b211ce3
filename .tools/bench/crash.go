package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// crashLoad is how long clients write before the crash, and crashPause what
	// each of them pauses after an acknowledgement.
	crashLoad  = 5 * time.Second
	crashPause = 5 * time.Millisecond
	// recoverWait bounds one recovery.
	recoverWait = 10 * time.Minute
	// crashedFolder keeps the data directories as the crash has left them.
	crashedFolder = "crashed"
	// operatorFolder is what the operator has.
	operatorFolder = "operator"
)

// crash is three hosts whose members were all killed under load.
type crash struct {
	bench   *bench
	members []member
	acked   *acked
}

// way is one to recover from a crash.
type way struct {
	name string
	// diskLost: the last member's data directory is gone.
	diskLost bool
	// loss: acknowledged writes may be lost.
	loss bool
	// ready writes what the operator and the hosts have before it comes to that.
	ready func(*crash) error
	// command is what an operator starts.
	command func(context.Context, *crash) *exec.Cmd
	// read takes what it printed. It may be nil.
	read func(out []byte, r *recovery) error
}

// crash restores the backup as a cluster of three, writes to it, and kills all
// members right after an acknowledgement.
func (b *bench) crash(ctx context.Context) (_ *crash, err error) {
	c := &crash{bench: b}
	var servers []*server
	c.members, servers, err = b.startRestored(ctx, oneRepo)
	struck := func() {
		for _, s := range servers {
			_ = s.cmd.Process.Kill() // seen below
		}
	}
	defer func() {
		struck()
		for _, s := range servers {
			<-s.gone
		}
		if err == nil {
			err = os.Rename(b.path(restoreFolder), b.path(crashedFolder))
		}
	}()
	if err != nil {
		return nil, err
	}
	c.acked, err = writeAcked(ctx, crashLoad, crashPause, struck, c.endpoints()...)
	return c, err
}

func (c *crash) endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.clientURL)
	}
	return all
}

func (c *crash) dataDirs() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.dataDir)
	}
	return all
}

// lay puts the data directories back as the crash has left them.
func (c *crash) lay(ctx context.Context, w way) error {
	folder := c.bench.path(restoreFolder)
	if err := c.clear(); err != nil {
		return err
	}
	// It keeps modes, and holes in files.
	if _, err := output(ctx, "cp", "--archive", c.bench.path(crashedFolder), folder); err != nil {
		return err
	}
	if w.diskLost {
		return os.RemoveAll(c.members[len(c.members)-1].dataDir)
	}
	return nil
}

// clear ends the members that a recovery has started, and removes what it left.
func (c *crash) clear() error {
	pids, err := runningOn(c.dataDirs()...)
	return errors.Join(err, kill(pids...), os.RemoveAll(c.bench.path(restoreFolder)), os.RemoveAll(c.bench.path(operatorFolder)))
}

func (c *crash) remove() error {
	return errors.Join(c.clear(), os.RemoveAll(c.bench.path(crashedFolder)))
}

// recover does it one way, and looks what came out.
func (c *crash) recover(ctx context.Context, w way, keys int64) (r recovery, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, recoverWait, fmt.Errorf("it took longer than %s", recoverWait))
	defer cancel()
	defer func() { err = errors.Join(err, c.clear()) }()
	if err := errors.Join(c.lay(ctx, w), os.MkdirAll(c.bench.path(operatorFolder), 0o700)); err != nil {
		return r, err
	}
	if err := w.ready(c); err != nil {
		return r, err
	}
	syscall.Sync()
	if err := c.run(ctx, w, &r); err != nil {
		return r, err
	}
	return r, c.check(ctx, w, keys, &r)
}

// run starts the command, and waits until it has ended and the cluster is whole.
func (c *crash) run(ctx context.Context, w way, r *recovery) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := w.command(ctx, c)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	r.began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended, most, served := make(chan struct{}), make(chan peak, 1), make(chan error, 1)
	go func() { most <- watchTree(cmd.Process.Pid, ended) }()
	go func() {
		var err error
		r.serving, err = await(ctx, r.began, c.endpoints())
		served <- err
	}()
	err := cmd.Wait()
	r.ended = time.Since(r.began)
	close(ended)
	r.peak = <-most
	if err != nil {
		err = errors.Join(err, context.Cause(ctx))
		cancel()
		<-served
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lastLines(out.String()+errs.String(), 20))
	}
	if err := <-served; err != nil {
		return err
	}
	if w.read == nil {
		return nil
	}
	return w.read(out.Bytes(), r)
}

// check counts what was lost. The rest of the database has to be there on every
// member.
func (c *crash) check(ctx context.Context, w way, keys int64, r *recovery) error {
	lost, err := c.acked.missing(ctx, c.endpoints()...)
	if err != nil {
		return err
	}
	r.acked = len(c.acked.values)
	if err := w.lost(r, lost); err != nil {
		return err
	}
	for _, m := range c.members {
		have, err := c.bench.countKeys(ctx, m.clientURL)
		if err != nil {
			return err
		}
		if want := keys + int64(r.acked-r.lost); have < want {
			return fmt.Errorf("member %s serves %d keys, want %d or more", m.name, have, want)
		}
	}
	return nil
}

// lost counts the acknowledged writes that are not there any more, and fails where
// there must be none.
func (w way) lost(r *recovery, keys []string) error {
	r.lost = len(keys)
	if r.lost > 0 && !w.loss {
		return fmt.Errorf("%d of %d acknowledged writes are lost, such as %s", r.lost, r.acked, keys[0])
	}
	return nil
}
