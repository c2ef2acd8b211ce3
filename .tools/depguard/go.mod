module github.com/requorum/requorum/tools/depguard

go 1.26.0
