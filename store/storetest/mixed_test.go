package storetest_test

import (
	"testing"
	"time"

	"github.com/requorum/requorum/store/storetest"
)

// A mixed load does everything to each version, and its members agree at the
// end. The versions between are in the long form, and in what uses such loads.
func TestMixedOnEachVersion(t *testing.T) {
	versions := []string{"3.4", "3.7"}
	if storetest.Soak() {
		versions = storetest.Versions()
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})
			r := storetest.RunMixed(t, c, storetest.MixedOptions{Seed: 1})
			t.Log(r)
			made := r.Total() // and what an alarm or a moving leader refused: how much that is RunMixed judges
			for _, count := range r.Done {
				made += count.Failed
			}
			if made < 3000 || r.Final.Revision == 0 {
				t.Errorf("%d requests, final state %+v", made, r.Final)
			}
		})
	}
}

// A member with a slow disk is held up, and serves again afterwards.
func TestSlowDisk(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	client := c.Client(t)
	stop := storetest.StartWriter(t, client, "/w/")
	slow := c.SlowDisk(t, 0, 100*time.Millisecond)
	start := time.Now()
	if _, err := client.Put(t.Context(), "slow", "put"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("a put to a slow disk took %s", took)
	}
	slow.Stop(t)
	stop.Stop()
	fastest := time.Hour // of several: the machine may be busy
	for range 20 {
		start = time.Now()
		if _, err := client.Put(t.Context(), "fast", "put"); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(start))
	}
	if fastest >= 100*time.Millisecond {
		t.Errorf("a put took %s at least after the disk had become fast again", fastest)
	}
}
