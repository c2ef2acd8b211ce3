package recovery

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/verify/replaying"
)

func TestMain(m *testing.M) {
	if os.Getenv("REQUORUM_TEST_HOST") != "" { // a host process
		signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
		if err := host.Serve(context.Background(), os.Stdin, os.Stdout, host.Options{Version: "test", CheckBase: replaying.CheckBase}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
