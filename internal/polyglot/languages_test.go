package polyglot

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/process"
)

const (
	// installTime is for a cold cache and a slow network.
	installTime = 10 * time.Minute
	// buildTime is for generating and compiling.
	buildTime = 3 * time.Minute
	// runTime is for all calls of a program; the longest waits two seconds.
	runTime = 2 * time.Minute
)

// program gives the command that runs one of a language's programs, "calls" or "vectors". The commands are those of
// clients/README.md, in a copy of the tree.
type program func(name string, args ...string) *exec.Cmd

func golang(t *testing.T) program {
	t.Helper()
	dir := t.TempDir()
	build := command(t, buildTime, "go", "build", "-trimpath", "-o", dir, "./clients/go/...")
	build.Dir = root
	must(t, build)
	return func(name string, args ...string) *exec.Cmd {
		return command(t, runTime, filepath.Join(dir, name), args...)
	}
}

func python(t *testing.T) program {
	t.Helper()
	interpreter, environment := pythonPackage(t)
	return func(name string, args ...string) *exec.Cmd {
		c := command(t, runTime, interpreter, append([]string{filepath.Join(root, "clients", "python", name+".py")}, args...)...)
		c.Env = environment
		return c
	}
}

// pythonPackage builds the package of clients/python, and gives an interpreter and the environment in which it has it.
func pythonPackage(t *testing.T) (interpreter string, environment []string) {
	t.Helper()
	tools := tool(t, "python3", "--version")
	if out, err := command(t, runTime, "python3", "-c", "import venv, ensurepip").CombinedOutput(); err != nil {
		lackingf(t, "python3 has no venv: %v\n%s", err, out)
	}
	dir := staged(t, "python")
	venv := installed(t, "python", tools, []string{"requirements.txt"}, func(fresh string) ([]byte, error) {
		if out, err := command(t, installTime, "python3", "-m", "venv", fresh).CombinedOutput(); err != nil {
			return out, err
		}
		// Wheels only: building gRPC from source takes a quarter of an hour.
		return command(t, installTime, filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--retries", "1",
			"--only-binary", ":all:", "--no-deps", "-r", filepath.Join(dir, "requirements.txt")).CombinedOutput()
	})
	interpreter = filepath.Join(venv, "bin", "python")
	site := t.TempDir()
	must(t, command(t, buildTime, interpreter, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
		"--target", site, dir))
	return interpreter, append(process.Environment(), "PYTHONPATH="+site, "PYTHONDONTWRITEBYTECODE=1")
}

func typescript(t *testing.T) program {
	t.Helper()
	dir := typescriptPackage(t)
	return func(name string, args ...string) *exec.Cmd {
		return command(t, runTime, "node", append([]string{filepath.Join(dir, "build", name+".js")}, args...)...)
	}
}

// typescriptPackage builds the package of clients/typescript in a copy of the tree, and gives its directory there.
func typescriptPackage(t *testing.T) (dir string) {
	t.Helper()
	tools := tool(t, "node", "--version") + tool(t, "npm", "--version")
	pins := []string{"package.json", "package-lock.json", ".npmrc"}
	dir = staged(t, "typescript")
	packages := installed(t, "typescript", tools, pins, func(fresh string) ([]byte, error) {
		for _, pin := range pins {
			if err := copyFile(filepath.Join(dir, pin), filepath.Join(fresh, pin)); err != nil {
				return nil, err
			}
		}
		c := command(t, installTime, "npm", "ci", "--no-audit", "--no-fund", "--fetch-retries", "1")
		c.Dir = fresh
		return c.CombinedOutput()
	})
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	build := command(t, buildTime, "npm", "run", "--silent", "build")
	build.Dir = dir
	must(t, build)
	return dir
}

func java(t *testing.T) program {
	t.Helper()
	tools := tool(t, "javac", "--version") + tool(t, "mvn", "--version")
	// A process that ends soon gains nothing from the second compiler.
	short := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}
	maven := func(limit time.Duration, dir, repository string, args ...string) *exec.Cmd {
		c := command(t, limit, "mvn", append([]string{"-B", "-q", "-ntp", "-Dmaven.repo.local=" + repository}, args...)...)
		c.Dir = dir
		c.Env = append(os.Environ(), "MAVEN_OPTS="+strings.Join(short, " "))
		return c
	}
	repository := installed(t, "java", tools, []string{"pom.xml"}, func(fresh string) ([]byte, error) {
		// Without our own sources: what does not compile is no lack of packages.
		dir := staged(t, "java")
		if err := os.RemoveAll(filepath.Join(dir, "src")); err != nil {
			return nil, err
		}
		return maven(installTime, dir, fresh, "package").CombinedOutput()
	})
	dir := staged(t, "java")
	must(t, maven(buildTime, dir, repository, "--offline", "package"))
	classes := ""
	for _, part := range []string{"classes", "test-classes", "lib/*"} {
		classes += filepath.Join(dir, "target", filepath.FromSlash(part)) + string(os.PathListSeparator)
	}
	mains := map[string]string{"calls": "io.github.sallyport.calls.Calls", "vectors": "io.github.sallyport.calls.Vectors"}
	return func(name string, args ...string) *exec.Cmd {
		return command(t, runTime, "java", slices.Concat(short, []string{"-cp", classes, mains[name]}, args)...)
	}
}
