package main

import (
	"fmt"

	"github.com/dustin/go-humanize"
)

// byteSize is a flag's value such as 8GiB.
type byteSize int64

func (s *byteSize) String() string { return humanize.IBytes(uint64(*s)) }

func (s *byteSize) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil {
		return fmt.Errorf("%w: want an amount such as 8GiB", err)
	}
	*s = byteSize(n)
	return nil
}
