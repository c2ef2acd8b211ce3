package sinktest

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// StartRclone starts `rclone serve s3`: the server that lacks what requorum
// must notice. It answers 200 to a conditional put and overwrites, and takes
// wrong checksums. Its buckets are made by MakeBucket.
func StartRclone(t testing.TB) *S3Server {
	t.Helper()
	binary := tool(t, "rclone", true)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &S3Server{Region: "us-east-1", AccessKey: "root", SecretKey: "root-secret", Dir: data, binary: binary}
	address := "127.0.0.1:" + freePort(t)
	s.Endpoint = "http://" + address
	s.process = &process{
		command: func() *exec.Cmd {
			cmd := exec.Command(binary, "serve", "s3", "--addr", address, "--auth-key", s.AccessKey+","+s.SecretKey, "--vfs-cache-mode", "off", data)
			cmd.Env = environ("RCLONE_CONFIG=" + filepath.Join(dir, "rclone.conf"))
			return cmd
		},
		ready: s.Endpoint, client: clientTrusting(""), log: filepath.Join(dir, "rclone.log"),
	}
	s.process.start(t)
	t.Cleanup(s.Kill)
	return s
}

// StartMinio starts minio with a key of its own for server-side encryption.
func StartMinio(t testing.TB) *S3Server {
	t.Helper()
	binary := tool(t, "minio", true)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &S3Server{Region: "us-east-1", AccessKey: "minio-root", SecretKey: "minio-root-secret", Dir: data, binary: binary}
	address := "127.0.0.1:" + freePort(t)
	s.Endpoint = "http://" + address
	key := base64.StdEncoding.EncodeToString(Random(1, 32))
	s.process = &process{
		command: func() *exec.Cmd {
			cmd := exec.Command(binary, "server", "--quiet", "--address", address, "--console-address", "127.0.0.1:0", "--config-dir", filepath.Join(dir, "config"), data)
			cmd.Env = environ("MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey,
				"MINIO_KMS_SECRET_KEY=test-key:"+key, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
			return cmd
		},
		ready: s.Endpoint + "/minio/health/ready", client: clientTrusting(""), log: filepath.Join(dir, "minio.log"),
	}
	s.process.start(t)
	t.Cleanup(s.Kill)
	return s
}
