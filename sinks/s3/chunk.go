package s3

import (
	"context"
	"fmt"
	"io"
)

// chunkReader reads one range with one request, and goes on with another one
// where the connection broke.
type chunkReader struct {
	ctx     context.Context
	source  *source
	body    io.ReadCloser // nil: to be asked for
	at, end int64
	resumed int
	err     error // for good
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for c.err == nil {
		if c.at == c.end {
			return 0, io.EOF
		}
		if c.body == nil {
			if c.body, c.err = c.source.get(c.ctx, c.at, c.end-c.at); c.err != nil {
				break
			}
		}
		n, err := c.body.Read(p[:min(int64(len(p)), c.end-c.at)])
		c.at += int64(n)
		if err != nil && c.at < c.end {
			c.lost(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, c.err
}

// lost drops a body that broke off. Progress is not asked for: a server that
// always cuts after some bytes is met with the limit too.
func (c *chunkReader) lost(err error) {
	c.body.Close() // it is broken already
	c.body = nil
	c.resumed++
	if c.ctx.Err() != nil {
		c.err = c.source.sink.explain(opRead, c.source.name, context.Cause(c.ctx))
		return
	}
	if c.resumed > resumes {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		c.err = &failure{
			what:  fmt.Sprintf("read %s in %s", c.source.name, c.source.sink),
			cause: fmt.Sprintf("the connection broke %d times, last at byte %d: %v", c.resumed, c.at, err),
			err:   fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err), temporary: true,
		}
	}
}

// Close ends the request that is under way.
func (c *chunkReader) Close() error {
	if c.body == nil {
		return nil
	}
	err := c.body.Close()
	c.body = nil
	if c.err == nil {
		c.err = errReaderClosed
	}
	return err
}
