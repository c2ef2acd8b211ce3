package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/safedir"
)

// etcdutlCan refuses what etcd's own library has no way to do.
func etcdutlCan(p *Plan) error {
	var cannot []string
	for _, m := range p.Members {
		if m.Learner {
			cannot = append(cannot, "make "+m.Name+" a learner")
		}
	}
	if len(p.ClearAlarms) > 0 {
		cannot = append(cannot, "clear the alarms of the image")
	}
	if len(cannot) > 0 {
		return fmt.Errorf("restore: %s: %w: use --engine %s", strings.Join(cannot, ", "), ErrCannot, EngineRequorum)
	}
	return nil
}

// buildWithEtcdutl writes the image to a file as `etcdctl snapshot save` would, from which etcd's
// library builds one member after the other.
func (r *run) buildWithEtcdutl(ctx context.Context) error {
	plain := filepath.Join(r.targets[0].data.staging(), "image.snapshot")
	if err := r.writeDatabases(ctx, []string{plain}); err != nil {
		return err
	}
	if r.plan.AuthOff { // etcd's library cannot
		out, err := edit{authOff: true}.apply(plain)
		if err != nil {
			return editError(r.image, err)
		}
		r.downgrade = out.downgrade
	}
	if _, _, err := appendSum(ctx, plain); err != nil {
		return err
	}
	amount := uint64(0)
	if r.plan.Bump != nil {
		// Its bump counts from the last key, ours from the last revision.
		last, err := lastKeyRevision(plain)
		if err != nil {
			return editError(r.image, err)
		}
		amount = uint64(r.plan.Bump.NewRevision - last)
	}
	done := r.phase(PhaseEdit)
	for _, t := range r.targets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.restoreWithEtcdutl(t, plain, amount); err != nil {
			return fmt.Errorf("etcdutl: restore member %s from %s: %w", t.Name, r.image.Name(), err)
		}
	}
	done()
	return safedir.Remove(plain)
}

func (r *run) restoreWithEtcdutl(t *target, plain string, amount uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it gave up: %v", p)
		}
	}()
	out := filepath.Join(t.data.staging(), "etcdutl")
	cfg := etcdutl.RestoreConfig{
		SnapshotPath:        plain,
		Name:                t.Name,
		OutputDataDir:       out,
		PeerURLs:            t.PeerURLs,
		InitialCluster:      r.plan.InitialCluster(),
		InitialClusterToken: r.plan.ClusterToken,
		RevisionBump:        amount,
		MarkCompacted:       amount > 0,
	}
	if t.wal != nil {
		cfg.OutputWALDir = t.builtWAL()
	}
	if err := etcdutl.NewV3(zap.NewNop()).Restore(cfg); err != nil {
		return err
	}
	if err := safedir.RemoveAll(t.built()); err != nil {
		return err
	}
	if err := safedir.Rename(filepath.Join(out, "member"), t.built()); err != nil {
		return err
	}
	return safedir.Remove(out)
}

// lastKeyRevision reads the last key of the key bucket.
func lastKeyRevision(path string) (rev int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its pages are damaged: %v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		ReadOnly: true, Timeout: time.Second,
		OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) { return safedir.Open(name) },
	})
	if err != nil {
		return 0, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("it has no key bucket: this is no etcd database")
		}
		if k := lastKey(keys); k != nil {
			rev = mvcc.BytesToRev(k).Main
		}
		return nil
	})
	return rev, errors.Join(err, db.Close())
}
