package web

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// shrink cuts what is empty below a screenshot's page, and leaves it 256 colours: its most
// frequent ones, and the nearest of them for the rest, which are the edges of letters.
func shrink(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	im, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	b, end := im.Bounds(), 0
	count := map[color.Color]int{}
	for y := range b.Max.Y {
		for x := range b.Max.X {
			count[im.At(x, y)]++
			if im.At(x, y) != im.At(0, b.Max.Y-1) {
				end = y
			}
		}
	}
	var colours color.Palette
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.Color) int { return count[b] - count[a] })
	out := image.NewPaletted(image.Rect(0, 0, b.Max.X, min(b.Max.Y, end+24)), colours[:min(len(colours), 256)])
	for y := range out.Rect.Max.Y {
		for x := range out.Rect.Max.X {
			out.Set(x, y, im.At(x, y))
		}
	}
	var small bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, out))
	require.NoError(t, os.WriteFile(file, small.Bytes(), 0o644))
}
