package client_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/requorum/requorum/store"
)

// memberConfig is of a bundled member on free ports, for startMember.
func memberConfig(t *testing.T, name string) store.MemberConfig {
	t.Helper()
	free, err := store.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	return store.MemberConfig{
		Name: name, DataDir: filepath.Join(t.TempDir(), name),
		ListenClientURLs: []string{fmt.Sprintf("http://127.0.0.1:%d", free[0])},
		ListenPeerURLs:   []string{fmt.Sprintf("http://127.0.0.1:%d", free[1])},
		Settings:         store.Settings{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), LogLevel: "error", Heartbeat: 50 * time.Millisecond, Election: 500 * time.Millisecond},
	}
}

func startMember(t *testing.T, config store.MemberConfig) *store.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	member, err := store.StartMember(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Kill)
	return member
}
