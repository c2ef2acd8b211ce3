package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set when a release is built (-ldflags "-X main.version=1.2.3").
var version = "dev"

type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	// Etcd is the version of the bundled store, which is also the newest that
	// backups are read from and clusters restored for.
	Etcd string `json:"etcd"`
}

func newVersionCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of requorum and of the bundled etcd",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if g.output == "json" {
				return g.printJSON(v)
			}
			fmt.Fprintf(g.stdout, "requorum %s\netcd %s\n%s %s/%s\n", v.Version, v.Etcd, v.Go, runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

func readVersion() versionReport {
	v := versionReport{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, dep := range info.Deps {
		if dep.Path == "go.etcd.io/etcd/server/v3" {
			v.Etcd = strings.TrimPrefix(dep.Version, "v")
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
