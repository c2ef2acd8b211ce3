package walreplay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGroupOf(t *testing.T) {
	for key, want := range map[string]string{
		"/registry/pods/shop/web-1":                                  "pods in shop",
		"/registry/namespaces/shop":                                  "namespaces",
		"/registry/services/specs/shop/web":                          "services/specs in shop",
		"/registry/masterleases/10.0.0.1":                            "masterleases",
		"/registry/example.com/widgets/shop/w":                       "example.com/widgets in shop",
		"/registry/apiregistration.k8s.io/apiservices/v1.apps":       "apiregistration.k8s.io/apiservices",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/x": "apiextensions.k8s.io/customresourcedefinitions",
		"/registry/ranges/serviceips":                                "ranges",
		"/registry/health":                                           "health",
		"/load/a/b":                                                  "/load",
		"load/a":                                                     "load",
		"compact_rev_key":                                            "compact_rev_key",
		"//x":                                                        "/",
		"/":                                                          "/",
		"":                                                           "",
	} {
		require.Equal(t, want, groupOf(key).String(), key)
	}
}
