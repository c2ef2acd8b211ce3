package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestDemoCompare_AnyDifference_Error(t *testing.T) {
	key := func(name string, revision int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(name), Value: []byte(demoValueOf(name)), ModRevision: revision}
	}
	other := key("/demo/keys/1", 2)
	other.Value = []byte("other")
	for name, c := range map[string]struct {
		found []*mvccpb.KeyValue
		same  bool
	}{
		"the same":                  {[]*mvccpb.KeyValue{key("/demo/keys/1", 2), key("/demo/keys/2", 3)}, true},
		"with the pending one":      {[]*mvccpb.KeyValue{key("/demo/keys/1", 2), key("/demo/keys/2", 3), key("/demo/keys/4", 4)}, true},
		"one is missing":            {[]*mvccpb.KeyValue{key("/demo/keys/1", 2)}, false},
		"only the pending one":      {[]*mvccpb.KeyValue{key("/demo/keys/4", 4)}, false},
		"another value":             {[]*mvccpb.KeyValue{other, key("/demo/keys/2", 3)}, false},
		"another revision":          {[]*mvccpb.KeyValue{key("/demo/keys/1", 1), key("/demo/keys/2", 3)}, false},
		"one that was never there":  {[]*mvccpb.KeyValue{key("/demo/keys/1", 2), key("/demo/keys/2", 3), key(demoPrecious, 4)}, false},
		"one from after the target": {[]*mvccpb.KeyValue{key("/demo/keys/1", 2), key("/demo/keys/2", 3), key("/demo/keys/3", 5)}, false},
	} {
		load := demoLoad{revisions: map[string]int64{"/demo/keys/1": 2, "/demo/keys/2": 3, "/demo/keys/3": 5}, pending: "/demo/keys/4"}
		require.Equal(t, c.same, load.compare(c.found, 4) == nil, name)
	}
}
