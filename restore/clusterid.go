package restore

import "github.com/requorum/requorum/snapshot"

// ClusterID is the ID that a cluster of these members and this token gets: the
// same that a plan has. initialCluster is as in Request.
func ClusterID(initialCluster, token string) (snapshot.ID, error) {
	cluster, err := newCluster(initialCluster, token, nil)
	if err != nil {
		return 0, &RequestError{err}
	}
	return snapshot.ID(cluster.ID()), nil
}
