package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// Commands and options that requorum no longer has, each with what to use instead.
// They are refused before anything is read or changed, also when an environment
// variable sets them that no other command reads.

// removedCommands maps a command's name to its replacement.
var removedCommands = map[string]string{
	"archive":     "run requorum agent --jobs none; keys of its --config FILE replace the other options",
	"attachments": "write the files with 'requorum show ID --attachments' to tar -t or tar -x",
	"keys":        "make a key with ssh-keygen -t ed25519 -N '' -f FILE",
	"sign":        "write with --signing-key from the first backup on",
}

// removedOptions maps a command's name, then an option's name, to the replacement.
var removedOptions = map[string]map[string]string{
	"backup": {"passphrase-file": "encrypt to an age key with --recipient"},
	"doctor": {"archivers": "doctor computes no costs"},
	"prune": {
		"forget":   deleteTimeline,
		"timeline": deleteTimeline,
	},
	"recover": {
		"cacert":                   "write etcd.cacert in the file that --write-config writes",
		"cert":                     "write etcd.cert in the file that --write-config writes",
		"cluster":                  "write cluster in the file that --write-config writes",
		"host":                     "find the members with --repo or --local, or copy deploy/recover/cluster.yaml",
		"key":                      "write etcd.key in the file that --write-config writes",
		"kind":                     "write defaults.kind in the file that --write-config writes",
		"recipient":                "write recipients in the file that --write-config writes",
		"recipients-file":          "write recipients-files in the file that --write-config writes",
		"run":                      "write hosts[].run in the file that --write-config writes",
		"ignore-checkpoint-hashes": "leave it out: the archive has no such hashes",
		"passphrase-file":          decryptWithIdentity,
	},
	"restore": {
		"ignore-checkpoint-hashes": "leave it out: the archive has no such hashes",
		"passphrase-file":          decryptWithIdentity,
	},
	"store": instead("pass etcd's own flags after --", "name", "wal-dir", "listen-client-urls", "advertise-client-urls",
		"listen-peer-urls", "initial-advertise-peer-urls", "listen-metrics-urls", "initial-cluster", "initial-cluster-state",
		"initial-cluster-token", "cert-file", "key-file", "trusted-ca-file", "client-cert-auth", "peer-cert-file", "peer-key-file",
		"peer-trusted-ca-file", "peer-client-cert-auth", "allow-plaintext", "quota-backend-bytes", "auto-compaction-mode",
		"auto-compaction-retention", "snapshot-count", "heartbeat-interval", "election-timeout",
		"experimental-initial-corrupt-check", "log-level", "log-outputs", "force"),
	"verify": {
		"dry-run":         "run 'requorum list' to see what is stored; verify changes nothing but adds a verdict",
		"passphrase-file": decryptWithIdentity,
	},
}

const (
	decryptWithIdentity = "decrypt with an age key, --identity FILE"
	deleteTimeline      = "delete the timeline's folder and its descriptor: docs/retention.md has the commands"
)

// instead gives several options one replacement.
func instead(replacement string, options ...string) map[string]string {
	all := map[string]string{}
	for _, option := range options {
		all[option] = replacement
	}
	return all
}

// errRemoved marks a command or an option that requorum no longer has.
var errRemoved = errors.New("requorum no longer has it")

// removedOption returns an error if the command once had the option; nil otherwise.
func removedOption(cmd *cobra.Command, option string) error {
	instead, removed := removedOptions[cmd.Name()][option]
	if !removed {
		return nil
	}
	return fmt.Errorf("--%s: %w: %s", option, errRemoved, instead)
}

// hasOption reports whether any command has the option.
func hasOption(root *cobra.Command, option string) bool {
	return slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool {
		return c.Flags().Lookup(option) != nil || hasOption(c, option)
	})
}

// removedCommand returns an error if requorum once had the command; nil otherwise.
func removedCommand(name string) error {
	instead, removed := removedCommands[name]
	if !removed {
		return nil
	}
	return fmt.Errorf("command %s: %w: %s", name, errRemoved, instead)
}
