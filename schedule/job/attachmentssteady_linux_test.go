package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPack_FileChanges_Fails packs a file that always has more bytes than its size says, as
// a file that grows while it is read.
func TestPack_FileChanges_Fails(t *testing.T) {
	_, err := pack(t, "/proc/self/status")
	require.ErrorContains(t, err, "/proc/self/status: it changes while it is read")
}
