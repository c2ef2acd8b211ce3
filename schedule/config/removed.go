package config

// removedKeys are keys of an agent's configuration that no longer exist, each with its
// replacement. A file that has one is refused.
var removedKeys = map[string]string{
	"archive.checkpoint-hash": "verify backups at level replay, which compares the log with the next full snapshot",
	"attachments.name":        "list the path itself, such as attachments: [/etc/kubernetes/pki]",
	"attachments.path":        "list the path itself, such as attachments: [/etc/kubernetes/pki]",
	"jobs.synthetic":          "take full snapshots of a member, with jobs.full",
	"listen.socket":           "run 'requorum backup', 'requorum verify' or 'requorum prune' by hand",
	"repository.writer":       "write repository.lease: off if only one agent uses the repository",
}
