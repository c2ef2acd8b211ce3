package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemberNamedTwice(t *testing.T) {
	_, err := parseSurvivors([]string{"m1=a", "m1=b"})
	require.ErrorContains(t, err, "named twice")
}
