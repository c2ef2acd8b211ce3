package verifytest

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/snapshot/rowkey"
	"github.com/requorum/requorum/verify/report"
)

// alone leaves the last backup only: there is nothing that it could be replayed
// from.
func alone(inject func(testing.TB, *Repo) string) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		r.ForgetVerdicts(t)
		for _, folder := range []string{"l0/", "l1/", "marks/", "gaps/", "superseded.json", "full/" + r.Backups[0], "full/" + r.Backups[before]} {
			r.RemoveAll(t, r.Timeline.String()+"/"+folder)
		}
		return inject(t, r)
	}
}

// drillFaults are in databases that etcd could have written and that make sense:
// and no cluster can go on with them. Whatever else keeps etcd from serving a
// database is found in its structure.
func drillFaults() []Fault {
	fault := func(name string, change func(*bbolt.Tx) error, kinds ...report.Kind) Fault {
		return Fault{Name: name, Rung: report.Drill, Kinds: kinds, Inject: alone(edit(change)), Database: true, Alone: true}
	}
	return []Fault{
		fault("the last revision there can be: no write goes through", set("meta", "scheduledCompactRev", rowkey.Revision{Main: math.MaxInt64}.Bytes()), report.KindServe, report.KindBoot),
		fault("a storage version that no etcd can bring up to its own", set("meta", "storageVersion", []byte("2.0.0")), report.KindBoot),
		fault("only learners: nobody can vote", onlyLearners, report.KindBoot),
	}
}

// onlyLearners is of a database without a raft configuration, as etcd 3.4 keeps
// it.
func onlyLearners(tx *bbolt.Tx) error {
	b := tx.Bucket([]byte("members"))
	all := map[string]map[string]any{}
	err := b.ForEach(func(k, v []byte) error {
		var m map[string]any
		d := json.NewDecoder(bytes.NewReader(v))
		d.UseNumber()
		all[string(k)] = m
		if err := d.Decode(&m); err != nil {
			return err
		}
		all[string(k)] = m
		return nil
	})
	if err != nil {
		return err
	}
	for id, m := range all {
		m["isLearner"] = true
		data, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := b.Put([]byte(id), data); err != nil {
			return err
		}
	}
	return drop("meta", "confState")(tx)
}
