package control_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/config"
)

// TestMain: as `PROGRAM serve FILE` this program is a control process, which says
// its address.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		if err := serveFile(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveFile(path string) error {
	cfg, err := config.Read(path)
	if err != nil {
		return err
	}
	p, err := control.Listen(context.Background(), cfg, control.Hooks{}, nil)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, p.Addr()); err != nil {
		return err
	}
	return p.Serve(context.Background())
}
