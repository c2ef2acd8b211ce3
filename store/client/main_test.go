package client_test

import (
	"flag"
	"os"
	"testing"
)

// The tests wait for elections and timeouts of real servers more than they
// compute, so more of them run at once than there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
