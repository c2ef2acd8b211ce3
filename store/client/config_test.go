package client

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestClientConfigFromEnv(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		want Config
		err  string
	}{
		{name: "empty"},
		{
			name: "all",
			env: map[string]string{
				"ENDPOINTS": "http://a:1, http://b:2", "CACERT": "ca", "CERT": "cert", "KEY": "key",
				"INSECURE_SKIP_TLS_VERIFY": "true", "INSECURE_TRANSPORT": "false",
				"USER": "u:p:q", "DIAL_TIMEOUT": "1s", "COMMAND_TIMEOUT": "2m",
				"KEEPALIVE_TIME": "3s", "KEEPALIVE_TIMEOUT": "4s", "WRITE_OUT": "json",
			},
			want: Config{
				Endpoints: []string{"http://a:1", "http://b:2"}, CACert: "ca", Cert: "cert", Key: "key",
				InsecureSkipTLSVerify: true, SecureTransport: true, User: "u", Password: "p:q",
				DialTimeout: time.Second, CommandTimeout: 2 * time.Minute, KeepAliveTime: 3 * time.Second, KeepAliveTimeout: 4 * time.Second,
			},
		},
		{name: "password apart", env: map[string]string{"USER": "u:v", "PASSWORD": "p"}, want: Config{User: "u:v", Password: "p"}},
		{name: "token", env: map[string]string{"AUTH_JWT_TOKEN": "t"}, want: Config{Token: "t"}},
		{name: "no boolean", env: map[string]string{"INSECURE_TRANSPORT": "maybe"}, err: "ETCDCTL_INSECURE_TRANSPORT"},
		{name: "no duration", env: map[string]string{"DIAL_TIMEOUT": "5"}, err: "ETCDCTL_DIAL_TIMEOUT"},
		{name: "discovery", env: map[string]string{"DISCOVERY_SRV": "example.com"}, err: "ETCDCTL_DISCOVERY_SRV is set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ConfigFromEnv(func(name string) string { return tt.env[strings.TrimPrefix(name, "ETCDCTL_")] })
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v", err)
				}
			case err != nil || !reflect.DeepEqual(got, tt.want):
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestDialRefusesContradictions(t *testing.T) {
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{Cert: "c"}, "both --cert and --key"},
		{Config{User: "u"}, "no password"},
		{Config{Password: "secret"}, "without a user"},
		{Config{Token: "t", User: "u", Password: "secret"}, "use one of them"},
		{Config{DialTimeout: -1}, "dial-timeout is negative"},
		{Config{Endpoints: []string{"nonsense"}}, "write nonsense:2379"},
	} {
		_, err := Dial(context.Background(), tt.config)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}
