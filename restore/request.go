package restore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/requorum/requorum/snapshot"
)

// Engines that build a member's files.
const (
	// EngineRequorum writes all members in one pass over the image.
	EngineRequorum = "requorum"
	// EngineEtcdutl goes through etcd's own etcdutl library, one member after
	// the other.
	EngineEtcdutl = "etcdutl"
)

// Request is what a user asks for; NewPlan turns it into a Plan.
type Request struct {
	// Image is what to restore from.
	Image snapshot.Image
	// Repository is the URL, without secrets, that the image was found in, and
	// BackupID its name there. Both are empty for a file.
	Repository, BackupID string
	// Target is the point that was asked for, in the user's words, where the
	// image is one that was rebuilt or chosen for it; Notes are sentences about
	// it for the plan.
	Target string
	Notes  []string

	// InitialCluster lists the members as etcd's flag does:
	// "m1=http://a:2380,m2=http://b:2380". A name may come more than once.
	InitialCluster string
	// Learners are the names in it that do not vote.
	Learners []string
	// ClusterToken is the new cluster's token. A fresh random one when empty,
	// so that members of the old cluster cannot mistake the new one for theirs.
	ClusterToken string

	// DataDir and WALDir are paths, "{name}" stands for the member's name.
	// Without a WALDir the WAL lies in the data directory.
	DataDir, WALDir string
	// SetAside allows to move what an existing data or WAL directory holds
	// aside, within it, on every host. Otherwise such a directory is refused.
	// ExecOptions allow it to one host.
	SetAside bool
	// Owner of the new files. Nil: as found on the directory that is replaced,
	// and who runs this otherwise.
	Owner *Owner

	// Bump says how the revision is to be bumped.
	Bump BumpRequest
	// HighestKnownRevision is the highest revision that anything in the lineage
	// of this image is known to have reached; 0 when nothing is known.
	HighestKnownRevision int64

	// TargetVersion is the oldest etcd that must be able to start the result,
	// such as "3.5". Empty: any that the image allows.
	TargetVersion string
	// Engine is EngineRequorum (also when empty) or EngineEtcdutl.
	Engine string

	// Only names the one member that this host builds, without sharing a plan
	// with the others. Every host must then come to the same cluster by itself:
	// ClusterToken and Bump have to be given. Hosts that share a plan leave it
	// empty here and name their member in ExecOptions.
	Only string
}

// check refuses what cannot be planned, before anything is read.
func (r *Request) check() error {
	switch {
	case r.Image == nil:
		return errors.New("restore: no image to restore from")
	case r.InitialCluster == "":
		return errors.New("restore: no members: give --initial-cluster name=peer-url,…")
	case r.DataDir == "":
		return errors.New("restore: no data directory: give --data-dir, with {name} in it for several members on one host")
	}
	switch r.Engine {
	case "", EngineRequorum, EngineEtcdutl:
	default:
		return fmt.Errorf("restore: unknown engine %q: use %s or %s", r.Engine, EngineRequorum, EngineEtcdutl)
	}
	for _, t := range []struct{ flag, path string }{{"--data-dir", r.DataDir}, {"--wal-dir", r.WALDir}} {
		if err := checkTemplate(t.flag, t.path); err != nil {
			return err
		}
	}
	if r.Only != "" {
		var missing []string
		if r.ClusterToken == "" {
			missing = append(missing, "the cluster token (--initial-cluster-token; member and cluster IDs come from it)")
		}
		if r.Bump.Mode == BumpAuto {
			missing = append(missing, "the revision bump, or that there is none (--bump-revision; members with different revisions are corrupt)")
		}
		if len(missing) > 0 {
			return fmt.Errorf("restore: building only member %s without a shared plan needs %s: give them on every host alike, or write a plan (--plan) on one host and read it on all",
				r.Only, strings.Join(missing, " and "))
		}
	}
	return r.Bump.check()
}

// checkTemplate refuses a mistyped {name}, which would be a path that all
// members share.
func checkTemplate(flag, path string) error {
	rest := strings.ReplaceAll(path, "{name}", "")
	start := strings.Index(rest, "{")
	if start < 0 {
		return nil
	}
	end := strings.Index(rest[start:], "}")
	if end < 0 {
		return nil
	}
	return fmt.Errorf("restore: %s %s: only {name} stands for something, %s does not", flag, path, rest[start:start+end+1])
}
