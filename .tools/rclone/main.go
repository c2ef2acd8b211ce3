// Command rclone is rclone with one backend and one server: `rclone serve s3`
// over a local folder. It stands in, in tests, for an S3 provider that
// answers 200 to a conditional put and overwrites all the same.
package main

import (
	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/serve/s3"
)

func main() { cmd.Main() }
