package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Repositories asks what the host can read of the repositories that its own
// configuration names: each of the pieces is looked for in each of them.
func (c *Client) Repositories(ctx context.Context, pieces []protocol.Stored) ([]protocol.Repository, error) {
	query := url.Values{}
	for _, p := range pieces {
		query.Add("piece", p.String())
	}
	var answer protocol.Repositories
	if err := c.ask(ctx, http.MethodGet, protocol.RepositoriesPath+"?"+query.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	return answer.Repositories, nil
}
