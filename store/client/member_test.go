package client_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
)

// memberConfig is of a bundled member on free ports, for startMember.
func memberConfig(t *testing.T, name string) store.MemberConfig {
	t.Helper()
	return store.MemberConfig{
		Name: name, DataDir: filepath.Join(t.TempDir(), name),
		ListenClientURLs: []string{"http://" + storetest.FreeAddress(t)},
		ListenPeerURLs:   []string{"http://" + storetest.FreeAddress(t)},
		Settings:         store.Settings{LogFile: os.DevNull},
	}
}

func startMember(t *testing.T, config store.MemberConfig) *store.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	member, err := store.StartMember(ctx, config)
	require.NoError(t, err)
	t.Cleanup(member.Kill)
	return member
}
