package main

import (
	"context"
	"errors"
	"io"

	"github.com/requorum/requorum/snapshot"
)

// prospect is a database that is not rebuilt yet: a plan that is only shown is made
// from it.
type prospect struct {
	name  string
	size  int64
	facts snapshot.Facts
}

func (p prospect) Name() string                                  { return p.name }
func (p prospect) Size() int64                                   { return p.size }
func (p prospect) Facts(context.Context) (snapshot.Facts, error) { return p.facts, nil }

// Open has nothing to read.
func (p prospect) Open(context.Context) (io.ReadCloser, error) {
	return nil, errors.New(p.name + " is not rebuilt yet")
}
