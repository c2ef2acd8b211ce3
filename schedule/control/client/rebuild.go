package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// RebuildMember builds the member's directories as a plan says, from where source
// tells that the survivors' data lies. The run must have set the old data aside.
// It may be called again after anything: what is there already is not brought or
// built again.
func (c *Client) RebuildMember(ctx context.Context, plan protocol.RebuildPlan, source protocol.RebuildSource) (*protocol.Rebuilt, error) {
	rawPlan, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("rebuild member %s: the plan: %w", c.options.Member, err)
	}
	rawSource, err := json.Marshal(source)
	if err != nil {
		return nil, fmt.Errorf("rebuild member %s: where the data lies: %w", c.options.Member, err)
	}
	done, err := c.Rebuild(ctx, rawPlan, rawSource)
	if err != nil {
		return nil, err
	}
	var built protocol.Rebuilt
	if err := json.Unmarshal(done.Result, &built); err != nil {
		return nil, fmt.Errorf("rebuild member %s: what was built: %w", c.options.Member, err)
	}
	return &built, nil
}
