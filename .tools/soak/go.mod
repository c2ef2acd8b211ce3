module github.com/requorum/requorum/tools/soak

go 1.26.0
