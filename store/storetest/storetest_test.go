package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// A comparison that finds nothing would prove nothing.
func TestCompare(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	filled := c.Fill(t, storetest.Load{Keys: 100, Leases: 1, Users: 1})
	client := c.Client(t)
	require.NoError(t, filled.Compare(t.Context(), client))
	for key := range filled.Keys {
		_, err := client.Delete(t.Context(), key)
		require.NoError(t, err)
		require.ErrorContains(t, filled.Compare(t.Context(), client), "key "+key+" is missing")
		break
	}
}
