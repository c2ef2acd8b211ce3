package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// probeEvery is how exactly it is known since when a cluster serves.
	probeEvery = 20 * time.Millisecond
	// probeWait is how long a write may wait for a quorum. One that waits is answered
	// in the moment when it is there.
	probeWait = 2 * time.Second
)

// serving is since when a cluster serves, counted from when one began to look.
type serving struct {
	write time.Duration // a write went through the quorum
	whole time.Duration // all members vote, and each answers with its quorum
}

// await looks, over plain HTTP, which waits for no connection that failed before.
func await(ctx context.Context, began time.Time, endpoints []string) (serving, error) {
	var s serving
	if err := awaitWrite(ctx, endpoints); err != nil {
		return s, fmt.Errorf("no write was acknowledged: %w", err)
	}
	s.write = time.Since(began)
	for !isWhole(ctx, endpoints) {
		if err := pause(ctx, probeEvery); err != nil {
			return s, fmt.Errorf("it serves after %s, but not with %d voters: %w", s.write.Round(time.Millisecond), len(endpoints), err)
		}
	}
	s.whole = time.Since(began)
	return s, nil
}

// awaitWrite returns with the first write that is acknowledged, by whichever
// member.
func awaitWrite(ctx context.Context, endpoints []string) error {
	trying, done := context.WithCancel(ctx)
	defer done()
	first := make(chan struct{}, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			for trying.Err() == nil {
				if probe(trying, endpoint) == nil {
					first <- struct{}{}
					return
				}
				_ = pause(trying, probeEvery) // its end is seen above
			}
		}()
	}
	select {
	case <-first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// probe writes one key through a member.
func probe(ctx context.Context, endpoint string) error {
	text := base64.StdEncoding.EncodeToString
	return post(ctx, endpoint+"/v3/kv/put", map[string]string{"key": text([]byte(keyPrefix + "probe")), "value": text([]byte(endpoint))}, nil)
}

// isWhole reports whether there are as many voters as endpoints, and each answers.
func isWhole(ctx context.Context, endpoints []string) bool {
	var list struct {
		Members []struct {
			Name      string `json:"name"`
			IsLearner bool   `json:"isLearner"`
		} `json:"members"`
	}
	if err := post(ctx, endpoints[0]+"/v3/cluster/member/list", struct{}{}, &list); err != nil || len(list.Members) != len(endpoints) {
		return false
	}
	for _, m := range list.Members {
		if m.IsLearner || m.Name == "" { // one that was only added has no name
			return false
		}
	}
	for _, endpoint := range endpoints {
		if !healthy(ctx, endpoint+"/health") {
			return false
		}
	}
	return true
}

// post asks etcd's gateway.
func post(ctx context.Context, url string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, res.Status, data)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}
