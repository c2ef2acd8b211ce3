package codec

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Level is how hard to compress.
type Level string

// Levels, from the fastest to the smallest result.
const (
	LevelFastest Level = "fastest"
	LevelDefault Level = "default"
	LevelBetter  Level = "better"
	LevelBest    Level = "best"
)

// ParseLevel reads a level as flags and files give it.
func ParseLevel(s string) (Level, error) {
	if _, err := Level(s).zstd(); err != nil {
		return "", err
	}
	return Level(s), nil
}

func (l Level) zstd() (zstd.EncoderLevel, error) {
	switch l {
	case LevelFastest:
		return zstd.SpeedFastest, nil
	case LevelDefault:
		return zstd.SpeedDefault, nil
	case LevelBetter:
		return zstd.SpeedBetterCompression, nil
	case LevelBest:
		return zstd.SpeedBestCompression, nil
	}
	return 0, fmt.Errorf("compression level %q is not one of fastest, default, better, best", string(l))
}
