package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Survey writes the digest of the stopped member to w; with a run, that of what
// the run set aside. It returns an error unless all of it came and its SHA-256 is
// the one that the sender reckoned; w may then have got some.
func (c *Client) Survey(ctx context.Context, w io.Writer, run string) error {
	path := protocol.SurveyPath
	if run != "" {
		path += "?" + url.Values{"run": {run}}.Encode()
	}
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := receive(w, resp); err != nil {
		return fmt.Errorf("the survey of member %s: %w", c.options.Member, err)
	}
	return nil
}
