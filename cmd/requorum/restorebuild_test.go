package main

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
)

// Every option of restore is either decided by a plan that exists, and refused where it
// says otherwise, or each host's own: one that is neither would be silently ignored.
func TestPlanDecides(t *testing.T) {
	ofHost := slices.Concat(repositoryFlags, []string{"name", "plan", "set-aside", "owner", "to-snapshot", "dry-run", "start", "client-urls", "start-timeout",
		"record", "file", "from-data-dir", "wal-dir-source", "scratch-dir", "replay-engine"})
	set := pflag.NewFlagSet("restore", pflag.ContinueOnError)
	new(restoreOptions).addFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(planFlags, f.Name) && !slices.Contains(ofHost, f.Name) {
			t.Errorf("--%s is neither decided by a plan nor of a host: add it to planFlags, and to targetFlags if it chooses the point", f.Name)
		}
	})
	for _, name := range targetFlags {
		var o restoreOptions
		o.addFlags(pflag.NewFlagSet("restore", pflag.ContinueOnError))
		value := "1"
		if o.set.Lookup(name).Value.Type() == "bool" {
			value = "true"
		}
		require.NoError(t, o.set.Set(name, value))
		same, other := &restore.Plan{}, &restore.Plan{}
		same.Source.Target, other.Source.Target = o.point.asked(), "--index 7"
		if !slices.Contains(planFlags, name) || o.agrees(name, other) || !o.agrees(name, same) {
			t.Errorf("--%s is not compared with the plan's %q", name, other.Source.Target)
		}
	}
}
