package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// localRequest is what the options ask for on this machine.
func (g *globals) localRequest(o *recoverOptions) (req recovery.Request, err error) {
	survivors, err := parseSurvivors(o.local)
	if err != nil {
		return req, err
	}
	req.Config = recovery.LocalConfig(survivors)
	req.Config.Repositories, req.Config.IdentityFiles = o.repo.urls, o.identities.files
	if len(o.repo.urls) > 0 {
		how, keys, err := o.repo.how(g)
		if err != nil {
			return req, err
		}
		req.Sinks = how
		req.Config.UseKeys(keys)
		g.noteUnchecked(o.repo.keys.checks())
	}
	build := o.forAll(o.toSnapshot)
	build.DataDir, build.WALDir, build.Learners, build.Target = absolute(build.DataDir), absolute(build.WALDir), o.learners, o.point.asked()
	req.Build = &build
	req.Local = &recovery.Local{
		Host: restore.ExecOptions{SetAside: o.req.SetAside, Owner: o.req.Owner}, Engine: o.point.replay.Engine,
		Scratch: func(members string) (string, error) {
			of := o.buildOptions
			of.req.InitialCluster = members
			return of.scratchDir(nil)
		},
		Writes: []string{o.plan, o.point.replay.ScratchDir},
		Check:  func(ctx context.Context, p *restore.Plan) error { return o.start.check(ctx, p, o.req.Owner, "") },
	}
	if o.plan != "" {
		req.Local.WritePlan = o.writePlan
	}
	return req, nil
}

// parseSurvivors reads --local.
func parseSurvivors(local []string) ([]sources.Survivor, error) {
	var all []sources.Survivor
	for _, text := range local {
		name, dirs, ok := strings.Cut(text, "=")
		dir, wal, _ := strings.Cut(dirs, ":")
		if !ok || name == "" || dir == "" {
			return nil, usageError{fmt.Errorf("--local %s: want member=dir, or member=dir:wal-dir where the log lies in a directory of its own", text)}
		}
		if slices.ContainsFunc(all, func(s sources.Survivor) bool { return s.Name == name }) {
			return nil, usageError{fmt.Errorf("--local %s: %s is named twice; give a second directory a name of its own", text, name)}
		}
		all = append(all, sources.Survivor{Name: name, DataDir: absolute(dir), WALDir: absolute(wal)})
	}
	return all, nil
}

// existing returns a directory, or the nearest one above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// absolute is a path from the root on; empty where there is none.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); path != "" && err == nil {
		return whole
	}
	return path
}
