//! Block devices behind one trait: raw device or file, memory, and faulty; aligned buffers.
