"""Where usage comes from: readers that turn what operators already have into the pipeline's tables."""
