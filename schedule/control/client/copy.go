package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Files lists the files of the stopped member: protocol.Current or, of what this
// run set aside, protocol.Aside.
func (c *Client) Files(ctx context.Context, of string) ([]protocol.File, error) {
	var list protocol.Files
	err := c.ask(ctx, http.MethodGet, protocol.DataPath+"?"+c.query(of).Encode(), nil, &list)
	return list.Files, err
}

func (c *Client) query(of string) url.Values {
	q := url.Values{"of": {of}}
	if of == protocol.Aside {
		q.Set("run", c.options.Run)
	}
	return q
}

// Copy writes length bytes of a file, from offset on, to w. It returns an error
// unless all of them came and their SHA-256 is the one that the sender reckoned;
// w may then have got some.
func (c *Client) Copy(ctx context.Context, w io.Writer, of, file string, offset, length int64) error {
	q := c.query(of)
	q.Set("file", file)
	q.Set("offset", strconv.FormatInt(offset, 10))
	q.Set("length", strconv.FormatInt(length, 10))
	resp, err := c.send(ctx, http.MethodGet, protocol.DataPath+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	failed := func(err error) error {
		return fmt.Errorf("copy %s of member %s, %d bytes from %d on: %w", file, c.options.Member, length, offset, err)
	}
	n, err := receive(w, resp)
	if err != nil {
		return failed(err)
	}
	if n != length {
		return failed(fmt.Errorf("%d came", n))
	}
	return nil
}

// receive writes what is sent to w, and compares its sum.
func receive(w io.Writer, resp *http.Response) (int64, error) {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), resp.Body)
	if err != nil {
		return n, err
	}
	if got, want := hex.EncodeToString(sum.Sum(nil)), resp.Trailer.Get(protocol.SumTrailer); got != want {
		return n, fmt.Errorf("the SHA-256 of what came is %s, and %q was sent", got, want)
	}
	return n, nil
}
