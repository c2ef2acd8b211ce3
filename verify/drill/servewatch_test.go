package drill

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Promise 3: a process that is killed while the drill waits for a watch's answer
// has not answered wrongly.
func TestPromise3NoAnswerIsNoWrongAnswer(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := &server{drill: &drill{expect: &expected{compacted: 9}, findings: &findings{}}, main: client}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as serve does when the process is gone
	if err := s.checkTooEarly(ctx); err == nil {
		t.Error("no error")
	}
	if all := s.findings.all(); len(all) > 0 {
		t.Errorf("taken for a fault of the image: %v", all)
	}
}
